"""``rebuild``: consume queues, index and checkpoint from the log alone, and repaired segments."""
