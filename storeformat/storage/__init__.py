"""The only package that opens, lists, moves or removes files.

Errors: MissingInput for what cannot be read, WriteFailed for what cannot be written, DependencyMissing for a location
without a client. Docstrings name only others.

================  =====================================================================================
``locations``     names of files and directories, local or not
``files``         opens, lists, writes and removes what they name, by a client for each kind of storage;
                  places for something new
----------------  -------------------------------------------------------------------------------------
``local_files``   writes one whole, finds its holes
``durable``       changes that a crash cannot tear; how far a file holds data, and its content
``rocksdb``       RocksDB databases
``broker_lock``   whether a broker runs
================  =====================================================================================
"""
