"""Whole models, stacked as the families stack them."""
