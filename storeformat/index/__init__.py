"""Index files: key hashes to commit-log offsets.

``index_file``: staged rows, and the hash table of them, ``index_check`` compares a file's entries with the log's.
"""
