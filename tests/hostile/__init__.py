"""Hostile files and failures: every case with the exit code and the error code it must end in."""
