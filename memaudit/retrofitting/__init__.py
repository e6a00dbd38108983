"""Recurrent weights in a stable form, without a change of what a model computes; and back."""
