"""The formats of weight files that carry no code."""
