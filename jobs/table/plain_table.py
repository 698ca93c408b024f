"""A Delta table as this program makes it, read and committed to by delta-rs: no JVM, and some milliseconds a commit.

A table is plain where delta-rs and this program know all that its readers and writers have to heed:

====================  ================================================================================================
where it lies         on a local file system: there delta-rs makes a version's file by a link, so of two one fails;
                      or on S3, with conditional writes (``s3_tables``)
protocol              readers of version 1; writers up to version 6, or 7 with nothing but ``_FEATURES``
its log               a checkpoint of one or more parts, or every version since the first
====================  ================================================================================================

Every other table is Delta's own affair (``messages_table``). Whether files may be added to a plain one as they are is
asked of its properties and columns (``commits.takes_files``). Who only reads need not heed what binds writers alone,
and reads a table whatever columns divide it: their values are in Delta's log, in none of the files.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from deltalake import exceptions
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from jobs.table import commits, s3_tables
from jobs.table.commits import BrokerRows, BrokerState, Commit, Overtaken, commits_back_from
from storeformat.arrays import Int64s
from storeformat.errors import MissingInput, TotalsDisagree, WriteFailed
from storeformat.storage import files, locations
from udfs.table import schemas
from udfs.table.parquet_files import PARTITION, WrittenFile

_FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns"})
"""Features of writers that bind nobody until a property or column says so; ``commits.takes_files`` looks at these."""

_PARTITION, _LEAST, _LARGEST = "partition.", "min.commit_log_offset", "max.commit_log_offset"
_NEAR = 64 << 20
_WIDER = 16
_ATTEMPTS = 20
_VERSIONS_A_CHECKPOINT = 10
_MOST_PARTS = 10_000
"""More than a checkpoint has: each takes up to a million files."""
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")
_TROUBLE = ("PermissionDenied", "Permission denied", "Operation not permitted", "NotADirectory", "Not a directory",
            "No space left", "StorageFull", "Read-only file system", "ReadOnlyFilesystem")  # fmt: skip


class NotPlain(Exception):
    """The table needs Delta's own reader or writer; the message says why."""


def may_be_plain(path: str) -> bool:
    """Returns whether tables are plain in this place, as far as that goes."""
    return locations.is_local(path) or s3_tables.on_s3(path)


def _place_of(path: str) -> tuple[str, dict[str, str] | None]:
    """Returns what delta-rs calls a place, and the options for it."""
    return s3_tables.place_of(path) if s3_tables.on_s3(path) else (locations.local_path(path), None)


class PlainTable:
    """One version of a plain table. Raises NotPlain where there is another kind of table, or none.

    Who ``reads_only`` may open a table with any feature of writers.
    """

    def __init__(self, path: str, *, reads_only: bool = False) -> None:
        if not may_be_plain(path):
            raise NotPlain("neither on a local file system nor on S3")
        self.path = locations.absolute(path)
        uri, options = _place_of(path)
        try:
            self._table = deltalake.DeltaTable(uri, storage_options=options)
        except (exceptions.DeltaError, OSError) as error:
            raise NotPlain(str(error)) from error
        protocol = self._table.protocol()
        unknown = set() if reads_only else set(protocol.writer_features or ()) - _FEATURES
        if protocol.min_reader_version != 1 or protocol.min_writer_version > 7 or unknown:
            raise NotPlain(f"protocol {protocol.min_reader_version}, {protocol.min_writer_version}, {sorted(unknown)}")

    @property
    def version(self) -> int:
        """The version of the table that this is."""
        return int(self._table.version())

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The table's properties, columns and partitions, as Delta's log has them."""
        found = self._table.metadata()
        return {
            "configuration": {name: value for name, value in found.configuration.items() if value is not None},
            "schemaString": self._table.schema().to_json(),
            "partitionColumns": list(found.partition_columns),
        }

    @cached_property
    def transactions(self) -> dict[str, int]:
        """Returns the newest version of each application's transactions; raises NotPlain if the log lacks commits,
        TotalsDisagree if delta-rs reads other versions.
        """
        found: dict[str, int] = {}
        checkpoint = self._checkpoint()
        reached = self.version + 1
        for version, actions in commits_back_from(self.path, self.version):
            if checkpoint is not None and version <= checkpoint[0]:
                break
            reached = version
            with commits.understanding(self.path):
                for action in actions:
                    if "txn" in action:
                        found.setdefault(action["txn"]["appId"], int(action["txn"]["version"]))
        if reached > (0 if checkpoint is None else checkpoint[0] + 1):
            raise NotPlain("its log lacks versions")
        for name in checkpoint[1] if checkpoint else ():
            filesystem, inner = files.resolve(name)
            for row in pq.read_table(inner, columns=["txn"], filesystem=filesystem)["txn"].drop_null().to_pylist():
                if row["appId"] is not None:
                    found.setdefault(row["appId"], int(row["version"]))
        for name, known in found.items():  # two readers of one log
            if self._table.transaction_version(name) != known:
                raise TotalsDisagree("two readers of the table's log disagree", path=self.path, found=name)
        return found

    def require_whole_log(self) -> None:
        """Raises NotPlain unless the log has every version since the first one or the newest checkpoint."""
        checkpoint = self._checkpoint()
        there = {entry.name for entry in files.list_directory(locations.join(self.path, "_delta_log")) or ()}
        wanted = range(checkpoint[0] + 1 if checkpoint else 0, self.version + 1)
        if not all(f"{version:020d}.json" in there for version in wanted):
            raise NotPlain("its log lacks versions")

    def _checkpoint(self) -> tuple[int, list[str]] | None:
        """Returns version and files of the newest checkpoint of this version or before, None without one."""
        log = locations.join(self.path, "_delta_log")
        try:
            last = json.loads(files.read_bytes(locations.join(log, "_last_checkpoint")))
            version, parts = int(last["version"]), last.get("parts")
            name = f"{version:020d}.checkpoint"
            if parts is None:
                names = [f"{name}.parquet"]
            else:
                names = [f"{name}.{part:010d}.{parts:010d}.parquet" for part in range(1, min(parts, _MOST_PARTS) + 1)]
        except MissingInput:
            return None
        except commits.NOT_DELTAS as error:
            raise NotPlain("what tells its newest checkpoint is not as Delta writes it") from error
        if version > self.version:  # another load came in between
            there = (entry.name for entry in files.list_directory(log) or ())
            older = [name for name in there if _CHECKPOINT.fullmatch(name) and int(name[:20]) <= self.version]
            if not older:
                return None
            names = [max(older)]
            version = int(names[0][:20])
        paths = [locations.join(log, name) for name in names]
        if len(names) == _MOST_PARTS or not all(files.exists(path) for path in paths):
            raise NotPlain("its newest checkpoint is of another kind")
        return version, paths

    def state(self, cluster: str, broker: str) -> BrokerState | None:
        """Returns how far a broker was loaded, None if it never was."""
        found = commits.recorded_state(self.transactions, cluster, broker)
        if found is not None:
            return found
        # A copy of a table has the rows and not their transactions.
        rows = self._rows(_of_broker(cluster, broker), ("commit_log_offset", "size"))
        ends = (pc.max(pc.add(batch["commit_log_offset"], pc.cast(batch["size"], pa.int64()))) for batch in rows)
        end = max((one.as_py() for one in ends if one.is_valid), default=None)
        return None if end is None else BrokerState(int(end), 0, recorded=False)

    def last_rows(
        self, cluster: str, broker: str, below: int, count: int, columns: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Returns the last rows of a broker below an offset, newest first."""
        found: list[dict[str, Any]] = []
        top, reach = below, _NEAR
        while len(found) < count and top > 0:
            begin = max(top - reach, 0)
            place = (pc.field("commit_log_offset") >= begin) & (pc.field("commit_log_offset") < top)
            batches = list(self._rows(_of_broker(cluster, broker) & place, columns, begin, top))
            rows = pa.Table.from_batches(batches).sort_by([("commit_log_offset", "descending")]) if batches else None
            found += rows.slice(0, count - len(found)).to_pylist() if rows is not None else []
            top, reach = begin, reach * _WIDER
        return found

    def _rows(
        self, condition: pc.Expression, columns: Sequence[str], begin: int = 0, end: int = 1 << 63
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows at offsets [begin, end) for which a condition holds, of files that may have such.

        delta-rs' own dataset is of no use here: it skips files of whose columns the log knows no extremes.
        """
        with reading(self.path):
            named = [
                known
                for known in self._files
                if (known.get(_LEAST) is None or known[_LEAST] < end)
                and (known.get(_LARGEST) is None or known[_LARGEST] >= begin)
            ]
            scanner = self._dataset(named).scanner(columns=list(columns), filter=condition)
            yield from (batch for batch in scanner.to_batches() if batch.num_rows)

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(pa.schema(self._table.schema()).names)

    def rows_between(self, cluster: str, broker: str, begin: int, end: int, columns: Sequence[str]) -> pa.Table:
        """Returns columns of a broker's rows at offsets [begin, end)."""
        place = (pc.field("commit_log_offset") >= begin) & (pc.field("commit_log_offset") < end)
        batches = list(self._rows(_of_broker(cluster, broker) & place, columns, begin, end))
        schema = pa.schema([pa.schema(self._table.schema()).field(name) for name in columns])
        return pa.Table.from_batches(batches, schema).combine_chunks()

    def add_columns(self, schema: pa.Schema) -> None:
        """Adds columns, comments included, as a version of its own; raises Overtaken."""
        if s3_tables.on_s3(self.path):
            s3_tables.require_conditional_writes(self.path)
        added, once = list(deltalake.Schema.from_arrow(schema).fields), CommitProperties(max_commit_retries=0)
        try:
            self._table.alter.add_columns(added, commit_properties=once)
        except exceptions.CommitFailedError as error:
            raise Overtaken(str(error)) from error
        except (exceptions.DeltaError, OSError) as error:
            raise _write_failed(self.path, error) from error

    def has(self, names: Sequence[str]) -> bool:
        """Returns whether it has these columns with the types that ``load`` gives them."""
        found = pa.schema(self._table.schema())
        return all(
            name in found.names and found.field(name).type == schemas.MESSAGES_WITH_BODY.field(name).type
            for name in names
        )

    def rows(self) -> pads.FileSystemDataset:
        """Returns all rows; of the columns that divide the table the files know by their ``partition_expression``."""
        with reading(self.path):
            return self._dataset(self._files)

    def _dataset(self, named: Sequence[Mapping[str, Any]]) -> pads.FileSystemDataset:
        """Returns the rows of files: with the values of columns that are in none of them."""
        schema = pa.schema(self._table.schema())
        form = pads.ParquetFileFormat(read_options=pads.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
        filesystem, root = files.resolve(self.path)
        fragments = []
        for known in named:
            path = unquote(known["path"])  # as in a URL, below the table's place or, in a clone, anywhere
            place = urlsplit(known["path"]).scheme and files.resolve(self._elsewhere(path))
            system, inner = place or (filesystem, f"{root}/{path}")
            fragments.append(
                form.make_fragment(inner, system, _values(known, self.metadata["partitionColumns"], schema))
            )
        return pads.FileSystemDataset(fragments, schema, form, filesystem)

    def _elsewhere(self, uri: str) -> str:
        """Returns the path of a file that is named in full; what opens the table's place opens that, too."""
        if uri.startswith("file:"):
            return uri.removeprefix("file:").removeprefix("//")
        return uri + locations.split_settings(self.path)[1]

    @cached_property
    def _files(self) -> list[dict[str, Any]]:
        """What Delta's log says of each file: its path, as in a URL, its values of partition columns, its offsets."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        known = ("path", "size_bytes", _LEAST, _LARGEST)
        named = [name for name in actions.column_names if name in known or name.startswith(_PARTITION)]
        return list(actions.select(named).to_pylist())

    def files_with(self, cluster: str, broker: str, offsets: Int64s) -> Iterator[tuple[RemoveAction, pa.Table]]:
        """Yields each file that has rows of a broker at some ascending offsets: what removes it, and its other rows."""
        with reading(self.path):
            for known in self._files:
                low, high = known.get(_LEAST), known.get(_LARGEST)
                first = 0 if low is None else np.searchsorted(offsets, low)
                if first == len(offsets) or (high is not None and offsets[first] > high):
                    continue
                rows = self._dataset([known]).to_table()
                named = pc.is_in(rows["commit_log_offset"], value_set=pa.array(offsets))
                mine = pc.and_(pc.equal(rows["cluster"], cluster), pc.equal(rows["broker"], broker))
                gone = pc.fill_null(pc.and_(named, mine), False)
                if pc.any(gone).as_py():
                    day = known.get(_PARTITION + PARTITION)
                    values = {PARTITION: None if day is None else str(day)}
                    action = RemoveAction(known["path"], True, int(time.time() * 1000), known["size_bytes"], values)
                    yield action, rows.filter(pc.invert(gone))

    def append(
        self, written: Sequence[WrittenFile], what: BrokerRows, seen: BrokerState | None, topics: Sequence[str],
        removed: Sequence[RemoveAction] = (),
    ) -> Commit:  # fmt: skip
        """Commits files of rows, and which go; ``seen`` is the state on which they are based. Raises Overtaken.

        A version is committed only right after the one that was looked at: whatever came between is looked at first,
        and where files are to go, nothing may have come.
        """
        if s3_tables.on_s3(self.path):
            s3_tables.require_conditional_writes(self.path)
        table = self
        rows = sum(file.rows for file in written)
        size = sum(file.size for file in written)
        metrics = {"numFiles": str(len(written)), "numOutputBytes": str(size), "numOutputRows": str(rows)}
        names = commits.transaction_names(what, topics)
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {PARTITION: file.store_date}, now, True, file.statistics)
            for file in written
        ]
        actions += removed
        for attempt in range(1 if removed else _ATTEMPTS):
            recorded = dict.fromkeys(names, what.done) | commits.salvage_recorded(table.transactions, what)
            properties = CommitProperties(
                custom_metadata={"userMetadata": json.dumps(what.metadata), "operationMetrics": metrics},
                max_commit_retries=0,
                app_transactions=[Transaction(name, version, now) for name, version in recorded.items()],
            )
            commits.refuse_overtaken(table.transactions, what, seen)
            if not commits.takes_files(table.metadata):
                raise Overtaken("the table's properties were changed meanwhile")
            try:
                table._table.create_write_transaction(
                    actions, "append", table._table.schema(), list(schemas.PARTITION_COLUMNS),
                    commit_properties=properties,
                )  # fmt: skip
            except exceptions.CommitFailedError:
                time.sleep(0.01 * attempt)
                table = _opened(self.path)
            except (exceptions.DeltaError, OSError) as error:
                raise _write_failed(self.path, error) from error
            else:
                version = table.version + 1
                table._checkpoint_every_tenth(version)
                return Commit(version, rows, any(file.delayed for file in written))
        raise Overtaken("other commits were faster")

    def _checkpoint_every_tenth(self, version: int) -> None:
        """Writes a checkpoint after a tenth version, as Delta does where the table names no interval; if it names one,
        delta-rs has just done so. The rows are committed: where the checkpoint fails, a later load makes one.
        """
        if version % _VERSIONS_A_CHECKPOINT == 0 and "delta.checkpointInterval" not in self.metadata["configuration"]:
            with suppress(exceptions.DeltaError, OSError):
                self._table.update_incremental()
                self._table.create_checkpoint()


def open_plain(path: str) -> PlainTable | None:
    """Returns the table at a path, None where it is of another kind or there is none."""
    try:
        table = PlainTable(path)
        _ = table.transactions
    except NotPlain:
        return None
    return table


def open_to_read(path: str) -> PlainTable | None:
    """Returns the table at a path for one who only reads it, None where Delta's own reader has to or none is there."""
    try:
        table = PlainTable(path, reads_only=True)
        table.require_whole_log()
    except NotPlain:
        return None
    return table


def create(path: str, schema: pa.Schema, properties: Mapping[str, str]) -> None:
    """Makes an empty table, unless one is there; raises Overtaken if another is made just now, else WriteFailed."""
    uri, options = _place_of(path)
    try:
        deltalake.DeltaTable.create(
            uri, schema, mode="ignore", partition_by=list(schemas.PARTITION_COLUMNS),
            configuration=dict(properties), storage_options=options, raise_if_key_not_exists=False,
        )  # fmt: skip
    except exceptions.CommitFailedError as error:
        raise Overtaken(str(error)) from error
    except (exceptions.DeltaError, OSError) as error:
        raise _write_failed(path, error) from error


def _opened(path: str) -> PlainTable:
    try:
        return PlainTable(path)
    except NotPlain as error:
        raise Overtaken(f"the table was changed meanwhile: {error}") from error


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Within it, a table's files that cannot be read raise MissingInput."""
    try:
        yield
    except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
        raise MissingInput(f"the table cannot be read: {_first_line(error)}", path=path) from error


def _write_failed(path: str, error: Exception) -> Exception:
    text = str(error)
    if "already exists" in text:
        return Overtaken(_first_line(error))
    sign = next((sign for sign in _TROUBLE if sign in text), None)
    return WriteFailed(f"the table cannot be written: {sign or _first_line(error)}", path=path)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _values(known: Mapping[str, Any], columns: Sequence[str], schema: pa.Schema) -> pc.Expression:
    """Returns what all rows of a file have in the columns that divide the table."""
    all_rows = pc.scalar(True)
    for name in columns:
        value = known.get(_PARTITION + name)
        column = pc.field(name)
        all_rows &= column.is_null() if value is None else column == pa.scalar(value, schema.field(name).type)
    return all_rows


def _of_broker(cluster: str, broker: str) -> pc.Expression:
    return (pc.field("cluster") == cluster) & (pc.field("broker") == broker)
