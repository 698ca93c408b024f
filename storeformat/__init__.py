"""The RocketMQ store on disk, with numpy, pyarrow and the standard library, without Spark. A module holds one artefact.

=========================================  =============================================================================
what changes                               where
=========================================  =============================================================================
the layout of a record                     ``message``
decoding a record, what it becomes         ``record/``; the loops over bytes in ``kernels/``, twice: numpy is the
                                           reference
the 20-byte unit, queue files, searches    ``queues/``
index entries and files                    ``index/``
segments, the chain of records, DLedger    ``log/``
what survives damage, repair               ``salvage/``
what differs from release to release       ``store/broker_rules``
settings, names of files, other files      ``store/``
opening, writing and moving files          ``storage/``
what Java does with text and numbers       ``javacompat``
=========================================  =============================================================================

FORMAT.md has all layouts. Format modules take buffers and columns (``arrays``) and return columns; ``errors`` has the
exceptions and limits.
"""

__version__ = "1.0.0"
