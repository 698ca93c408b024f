"""Bytes in and out: the only package that opens, lists, moves or removes files.

All of it raises MissingInput for what cannot be read, WriteFailed for what cannot be written, and DependencyMissing for
a location without a client; so does whoever calls it with a path. Docstrings say so only where there is more to it.

=================  ====================================================================================
``locations``      names of files and directories, local or not
``files``          opens, lists, writes and removes what they name, by the ``clients`` of storage
``extents``        how far a file holds data, and its content
``outputs``        places for something new
-----------------  ------------------------------------------------------------------------------------
``local_status``   what a local file system says of files; ``local_files`` writes one whole, finds its holes
``local_copies``   reads and copies many local files at a time
``rocksdb``        RocksDB databases
``trusted_paths``  the way to where root writes, which nobody else can make lead elsewhere
``store_owner``    the user that a store belongs to, as whom it is changed
``durable``        changes that a crash cannot tear
``broker_lock``    whether a broker runs
=================  ====================================================================================
"""
