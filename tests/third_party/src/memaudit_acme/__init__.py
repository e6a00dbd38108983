"""An adapter, a query and a report format that memaudit has never heard of."""
