"""Index files: key hashes to commit-log offsets.

``entries`` are staged rows, ``index_file`` the hash table, ``index_check`` compares a file's entries with the log's.
"""
