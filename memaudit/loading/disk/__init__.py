"""Files and folders on disk: reading by position, containment, shards, budgets."""
