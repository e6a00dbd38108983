"""Torch files: pickles read by instructions of our own, in which nothing is imported or called."""
