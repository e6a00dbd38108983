"""Writing checkpoints: one file for every format that memaudit writes."""
