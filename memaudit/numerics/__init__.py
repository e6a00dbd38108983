"""Pure tensor functions behind the measurements."""
