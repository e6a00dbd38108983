"""Tests of the comparison of reports."""
