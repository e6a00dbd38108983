"""The inverse approximation paper (IATN), one row a file."""
