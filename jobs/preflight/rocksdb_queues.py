"""Rules on queues in RocksDB: what the start dispatches again, given how far the database is.

===============  ============================================================================================
release          where the start begins to dispatch
===============  ============================================================================================
5.2.0 to 5.3.3   with the segment in which the database ends
5.4.0 and later  the same, but with the tenth-last segment at the earliest (``commitLogRecoverMaxNum``)
===============  ============================================================================================

Mirrors CommitLog#recoverNormally, #recoverAbnormally and #isMappedFileMatchedRecover (5.3.3; in 5.5.0
RocksDBConsumeQueueStore#isMappedFileMatchedRecover). After a clean stop the record that begins exactly where the
database ends is passed over (recoverNormally asks for offsets beyond it); a broker flushes before it stops, so that
there is none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import StoppedStore
from storeformat.store.recovery import recovered_from

_REBUILD = "rebuild --queue-store rocksdb, then publish"


def database_not_read(store: StoppedStore) -> Iterator[Reason]:
    """Yields a database of queues that could not be read: one that is broken ends the start.

    Mirrors AbstractRocksDBStorage#start and RocksDBConsumeQueueStore#load, which is false where that is (5.3.3, 5.5.0).
    Without the library nothing is known of it.
    """
    if store.rocksdb.unread is not None:
        yield Reason(
            "database_not_read",
            f"whether the queues in RocksDB fit the log is not known: {store.rocksdb.unread}",
            found="not read",
            expected="a database that can be opened",
            cure=_REBUILD if store.rocksdb.broken else "",
            unsafe=store.rocksdb.broken,
        )


def not_dispatched(store: StoppedStore) -> Iterator[Reason]:
    """Yields messages after the end of the database that the start does not put there.

    Mirrors CommitLog#recoverNormally and #isMappedFileMatchedRecover (5.3.3) and
    RocksDBConsumeQueueStore#isMappedFileMatchedRecover (5.5.0). A queue that lacks a message is served up to there; in
    5.5.0 DefaultMessageStore#getMessage throws there.
    """
    dispatched, segments = store.rocksdb.dispatched, store.log.segments
    if dispatched is None or not segments:
        return
    first, expected = recovered_from(segments, store.rules, store.conf), store.tail.end
    if max(dispatched, segments[0].base) < first:
        what, expected = f"the start goes back to {first} only: the messages between are in no queue", first
    elif not store.after_crash and dispatched and np.isin(dispatched, store.tail.offsets).any():
        what = "the start skips the record there and dispatches those after it"
    else:
        return
    what = f"the queues in RocksDB end at offset {dispatched}, and {what}"
    yield Reason("messages_not_served", what, dispatched, f"at least {expected}", _REBUILD)
