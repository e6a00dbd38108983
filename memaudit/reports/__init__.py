"""Ways to show a report, one class each."""
