"""Any module or callable as a subject, and copies of it with moved weights."""
