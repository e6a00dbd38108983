"""StableSSM, one row a file."""
