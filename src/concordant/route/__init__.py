"""The content-based overlay: filters, tables and brokers that carry events to whom they concern."""
