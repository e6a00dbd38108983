"""Claims that practitioners make, one row a file."""
