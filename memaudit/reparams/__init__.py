"""Reparameterizations: how a raw weight becomes an eigenvalue, one class each."""
