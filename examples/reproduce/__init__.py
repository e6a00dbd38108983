"""Every experiment of the papers, one small file a row: python -m examples.reproduce --list."""
