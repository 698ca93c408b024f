"""Index files: from the hash of a key to commit-log offsets.

``entries`` before they have a file; ``index_file`` is the hash table; ``alignment`` puts two sequences of entries side
by side; ``index_check`` compares one file with the log.
"""
