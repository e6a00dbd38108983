"""Measurements beside the memory functions, one class each."""
