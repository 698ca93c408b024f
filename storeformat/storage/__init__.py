"""Bytes in and out: the only package that opens, lists, moves or removes files.

``locations`` names files and directories; ``files`` opens them; ``extents`` says how far a file holds data; ``outputs``
are places for something new; ``durable`` changes local directories so that a crash cannot tear them.
"""
