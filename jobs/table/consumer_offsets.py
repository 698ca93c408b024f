"""The Delta table ``TABLE_consumer_offsets``: a snapshot of committed offsets for each load, on local disks only."""

from __future__ import annotations

import time

import deltalake
import pyarrow as pa

from jobs.consumer_offsets.lag import lag_rows
from jobs.contract.options import LoadOptions
from jobs.log.opening import OpenedStore
from jobs.table import commits
from storeformat.errors import StoreFormatError, WriteFailed
from storeformat.storage import files, locations
from storeformat.store.config.config_files import BACKUP_SUFFIX, CONSUMER_OFFSETS, LMQ_OFFSETS

SUFFIX = "_consumer_offsets"
_ATTEMPTS = 5
"""If several processes create the table at once, delta-rs lets all but one fail."""
SCHEMA = pa.schema([
    pa.field("cluster", pa.string()),
    pa.field("broker", pa.string()),
    pa.field("loaded_at", pa.timestamp("us", "UTC"), metadata={"comment": "When this snapshot was taken"}),
    pa.field("group", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("committed", pa.int64()),
    pa.field("queue_begin", pa.int64(), metadata={"comment": "First queue offset that the log still has"}),
    pa.field("queue_end", pa.int64()),
    pa.field("lag", pa.int64(), metadata={"comment": "Messages that can still be read"}),
    pa.field("deleted", pa.int64(), metadata={"comment": "Messages that were deleted before they were read"}),
])  # fmt: skip


def add_snapshot(store: OpenedStore, options: LoadOptions, table: str) -> tuple[int, list[str]]:
    """Append a snapshot; returns the number of rows, and notes."""
    if not (locations.is_local(store.root) and locations.is_local(table)):
        return 0, []
    config = locations.join(store.root, "config")
    kept = LMQ_OFFSETS if store.layout.enable_lmq else CONSUMER_OFFSETS
    if not any(files.exists(locations.join(config, name)) for name in (kept, kept + BACKUP_SUFFIX, "consumerOffsets")):
        return 0, []
    try:
        rows, _ = lag_rows(store)
    except StoreFormatError as error:
        return 0, [f"committed offsets are not in {locations.name_of(table)}{SUFFIX}: {error}"]
    if rows:
        fixed = {"cluster": options.cluster, "broker": options.broker, "loaded_at": int(time.time() * 1_000_000)}
        named = [{**row, **fixed, "queue_begin": row["begin"], "queue_end": row["end"]} for row in rows]
        _append(locations.local_path(table) + SUFFIX, pa.Table.from_pylist(named, SCHEMA))
    return len(rows), []


def _append(path: str, table: pa.Table) -> None:
    commits.refuse_irregular_log(path)
    files.make_directory(path)
    for left in reversed(range(_ATTEMPTS)):
        try:
            deltalake.write_deltalake(path, table, mode="append", name="consumer_offsets")
        except (OSError, deltalake.exceptions.DeltaError) as error:
            if left and not isinstance(error, OSError):
                time.sleep(0.1 * (_ATTEMPTS - left))
                continue
            what = f"a snapshot of committed offsets was not added: {files.first_line(error)}"
            raise WriteFailed(what, path=path) from error
        return
