"""The rules that turn measurements into findings, one class each."""
