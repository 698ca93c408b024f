"""Bytes in and out: the only package that opens, lists, moves or removes files.

``locations`` names files and directories; ``files`` opens them; ``extents`` says how far a file holds data; ``outputs``
are places for something new. The others are about local directories alone: ``durable`` changes them so that a crash
cannot tear them, ``local_copies`` reads and copies many files, ``mounts`` says what no rename reaches, ``owners`` who
owns what, and ``broker_lock`` whether a broker runs.
"""
