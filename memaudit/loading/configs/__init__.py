"""The config.json of a checkpoint: hostile text, cleaned, and measured against the weights."""
