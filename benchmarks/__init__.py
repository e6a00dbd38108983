"""What an audit costs, in ratios and counts of one run: `python -m benchmarks`."""
