"""Eigenvalues of every recurrent layer: margins, time scales, predicted rates."""
