"""The memory functions, one class each."""
