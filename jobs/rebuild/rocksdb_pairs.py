"""``rebuild --only rocksdb``: the pairs that a broker with RocksDB queues would hold, as one Parquet table.

The table lies in ``DIR/rocksdb`` and has the columns family, topic, queue_id, queue_offset, key, value and, of units,
what the value says: phy_offset, size, tags_code, store_timestamp. It is for comparing with a broker's database, or for
filling one: ``key`` and ``value`` are its bytes. Batch queues do not exist there: topics of that type have plain ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.contract.options import RebuildOptions
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.rebuild.build_store import check_rows, complete, scan_store
from jobs.rebuild.rocksdb_database import ends_of_queues, in_parts, plan_slices
from jobs.rebuild.staging import Workplace
from jobs.spark.runner import Runner
from storeformat.storage import files, locations
from udfs.files.output_files import FileRows, batch_of
from udfs.files.rocksdb_pairs import PlannedPairsFile, WritePairs, end_pairs

ROCKSDB = "rocksdb"
_ROWS_A_FILE = 1 << 18


@dataclass(frozen=True)
class Exported:
    """A finished and checked export in staging: ``pairs`` in all, of ``queues`` queues."""

    directory: str
    reading: LogReading
    rows: FileRows
    queues: int
    pairs: int


def export(
    options: RebuildOptions, store: OpenedStore, staging: str, runner: Runner, *, made: str | None = None
) -> Exported:
    """Returns the checked export of a store's pairs, made in ``staging`` or, if it is given, in ``made``."""
    place = Workplace.within(staging, made)
    plain = replace(store, batch_topics=frozenset())
    reading = scan_store(replace(options, only=("consumequeue",)), plain, place.runs, runner, with_times=True)
    slices = plan_slices(reading)
    parts = enumerate(in_parts(slices, _ROWS_A_FILE))
    jobs = [PlannedPairsFile(locations.join(ROCKSDB, f"default-{number:06d}.parquet"), part) for number, part in parts]
    rows = FileRows.of([])
    if not options.dry_run:
        write = WritePairs(place.output)
        units = FileRows.of(runner.map("write RocksDB pairs", write, jobs))
        check_rows("RocksDB pairs", units, ((job.path, sum(part.count for part in job.slices)) for job in jobs))
        ends = write.write(locations.join(ROCKSDB, "offset.parquet"), end_pairs(*ends_of_queues(reading, slices)))
        rows = FileRows.concatenate([units, FileRows.of([batch_of([ends])])]).by_path()
        complete(place.made, options, store, reading, rows)
    files.remove_tree(place.runs)
    queues = len({(part.topic, part.queue_id) for part in slices})
    return Exported(place.made, reading, rows, queues, sum(part.count for part in slices) + 2 * queues + 1)
