"""Ways to show a report: every writer draws sections or numbers, and knows no capability."""
