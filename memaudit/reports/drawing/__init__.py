"""The report as a matplotlib figure; matplotlib is loaded by `figure` and nowhere before."""
