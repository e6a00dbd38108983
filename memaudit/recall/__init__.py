"""What of the past can be read back from the states of a model."""
