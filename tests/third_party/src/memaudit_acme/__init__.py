"""An adapter, a query, a probe and a report format that memaudit has never heard of."""
