"""Selective scans in hosts of unknown make: each is run by itself."""
