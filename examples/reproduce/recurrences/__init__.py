"""The paper on linear recurrences, one row a file."""
