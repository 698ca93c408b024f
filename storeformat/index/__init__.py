"""Index files (key hashes to commit-log offsets): made and read by ``index_file``, compared by ``index_check``."""
