"""The only room that opens checkpoints."""
