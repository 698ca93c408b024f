"""Index files: key hash to commit-log offsets.

``entries`` are staged rows, ``index_file`` the hash table, ``matching`` compares a file's entries with the log's as
multisets, ``index_check`` checks one file.
"""
