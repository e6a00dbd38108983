"""Checkpoints of growing size, held against one target functional."""
