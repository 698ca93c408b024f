"""A Delta table as this program makes it, read and committed to by delta-rs: no JVM, and some milliseconds a commit.

A table is plain where delta-rs and this program know all that its readers and writers have to heed:

====================  ================================================================================================
where it lies         on a local file system: there delta-rs makes a version's file by a link, so of two one fails;
                      or on S3, with conditional writes (``s3_tables``)
protocol              readers of version 1; writers up to version 6, or 7 with nothing but ``_FEATURES``
its log               a checkpoint of one or more parts, or every version since the first
====================  ================================================================================================

Every other table is Delta's own affair (``messages_table``). Whether files may be added to a plain one as they are is
asked of its properties and columns (``commits.takes_files``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from deltalake import exceptions
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from jobs.table import commits, s3_tables
from jobs.table.commits import BrokerRows, BrokerState, Commit, Overtaken, commits_back_from
from storeformat.errors import MissingInput, TotalsDisagree, WriteFailed
from storeformat.storage import files, locations
from udfs.table import schemas
from udfs.table.parquet_files import PARTITION, WrittenFile

_FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns"})
"""Features of writers that bind nobody until a property or column says so; ``commits.takes_files`` looks at these."""

_DAY, _LEAST, _LARGEST = f"partition.{PARTITION}", "min.commit_log_offset", "max.commit_log_offset"
_NEAR = 64 << 20
_WIDER = 16
_ATTEMPTS = 20
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
    """One version of a plain table. Raises NotPlain where there is another kind of table, or none."""

    def __init__(self, path: str) -> None:
        if not may_be_plain(path):
            raise NotPlain("neither on a local file system nor on S3")
        self.path = locations.absolute(path)
        uri, options = _place_of(path)
        try:
            self._table = deltalake.DeltaTable(uri, storage_options=options)
        except (exceptions.DeltaError, OSError) as error:
            raise NotPlain(str(error)) from error
        protocol = self._table.protocol()
        unknown = set(protocol.writer_features or ()) - _FEATURES
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

    def _checkpoint(self) -> tuple[int, list[str]] | None:
        """Returns version and files of the newest checkpoint, None without one."""
        log = locations.join(self.path, "_delta_log")
        try:
            last = json.loads(files.read_bytes(locations.join(log, "_last_checkpoint")))
        except MissingInput:
            return None
        version, parts = int(last["version"]), last.get("parts")
        name = f"{version:020d}.checkpoint"
        if parts is None:
            names = [f"{name}.parquet"]
        else:
            names = [f"{name}.{part:010d}.{parts:010d}.parquet" for part in range(1, parts + 1)]
        paths = [locations.join(log, name) for name in names]
        if version > self.version or not all(files.exists(path) for path in paths):
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
            paths = [
                uri
                for uri, known in self._files
                if (known.get(_LEAST) is None or known[_LEAST] < end)
                and (known.get(_LARGEST) is None or known[_LARGEST] >= begin)
            ]
            if not paths:
                return
            scanner = self._dataset(paths).scanner(columns=list(columns), filter=condition)
            yield from (batch for batch in scanner.to_batches() if batch.num_rows)

    def has(self, names: Sequence[str]) -> bool:
        """Returns whether it has these columns with the types that ``load`` gives them."""
        found = pa.schema(self._table.schema())
        return all(
            name in found.names and found.field(name).type == schemas.MESSAGES_WITH_BODY.field(name).type
            for name in names
        )

    def dates(self) -> Iterator[tuple[date | None, pads.Dataset]]:
        """Yields the files of each ``store_date``, which itself is in none of them."""
        with reading(self.path):
            paths: dict[date | None, list[str]] = {}
            for uri, known in self._files:
                paths.setdefault(known[_DAY], []).append(uri)
            for day, named in paths.items():
                yield day, self._dataset(named)

    def _dataset(self, paths: Sequence[str]) -> pads.Dataset:
        """Returns the rows of files as delta-rs names them: below the table's place, which is quoted as in a URL."""
        filesystem, _ = files.resolve(self.path)
        options = pads.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        return pads.dataset(
            [unquote(path.removeprefix("s3://")) for path in paths], pa.schema(self._table.schema()),
            pads.ParquetFileFormat(read_options=options), filesystem,
        )  # fmt: skip

    @cached_property
    def _files(self) -> list[tuple[str, dict[str, Any]]]:
        """Each file as delta-rs names it, and what Delta's log says of its date and offsets."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        named = [name for name in ("path", _DAY, _LEAST, _LARGEST) if name in actions.column_names]
        known = {str(row["path"]).rpartition("/")[2]: row for row in actions.select(named).to_pylist()}
        return [(uri, known.get(uri.rpartition("/")[2], {})) for uri in self._table.file_uris()]

    def append(
        self, written: Sequence[WrittenFile], what: BrokerRows, seen: BrokerState | None, topics: Sequence[str]
    ) -> Commit:
        """Commits files of new rows; ``seen`` is the state on which they are based. Raises Overtaken.

        A version is committed only right after the one that was looked at: whatever came between is looked at first.
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
        properties = CommitProperties(
            custom_metadata={"userMetadata": json.dumps(what.metadata), "operationMetrics": metrics},
            max_commit_retries=0,
            app_transactions=[Transaction(name, what.done, now) for name in names],
        )
        for attempt in range(_ATTEMPTS):
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
                return Commit(table.version + 1, rows, any(file.delayed for file in written))
        raise Overtaken("other commits were faster")


def open_plain(path: str) -> PlainTable | None:
    """Returns the table at a path, None where it is of another kind or there is none."""
    try:
        table = PlainTable(path)
        _ = table.transactions
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


def _of_broker(cluster: str, broker: str) -> pc.Expression:
    return (pc.field("cluster") == cluster) & (pc.field("broker") == broker)
