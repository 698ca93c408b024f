"""Index files: from the hash of a key to commit-log offsets.

``entries`` before they have a file; ``index_file`` is the hash table; ``matching`` compares a file's entries with the
log's, as multisets; ``index_check`` checks one file.
"""
