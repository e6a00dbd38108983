"""What memaudit says of its demos, recorded."""
