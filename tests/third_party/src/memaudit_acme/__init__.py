"""An adapter, a query, a probe and a report format that memaudit does not know."""
