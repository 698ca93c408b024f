"""The Delta table ``messages``, read and committed to by delta-rs: no JVM, some milliseconds a commit, on any storage.

====================  ================================================================================================
appends, repairs      tasks write Parquet; one transaction names added and removed files
exactly once          delta-rs refuses a commit after another one with the same transactions (``commits``)
features              what delta-rs cannot write, or what demands more of rows than our files provide, is refused by
                      name (``_FEATURES``, ``commits.obstacle``)
its log               a checkpoint, or every version since the first
local                 a version is a new file of Delta's log, made by a link: of two that make it one fails
S3                    ``If-None-Match: *``: the server stores an object only if it does not exist (AWS since 2024,
                      MinIO and Ceph for longer); a server that ignores the header loses one of two loads at once
GCS, Azure            the same, by conditions of their own
HDFS                  a rename that does not replace
====================  ================================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import exceptions
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from jobs.contract import options
from jobs.table import commits
from jobs.table.commits import BrokerRows, BrokerState, Commit, Overtaken
from storeformat.errors import READ_WHOLE, MissingInput, NotAStore, Refused, UsageError, WriteFailed
from storeformat.storage import files, locations
from udfs.table import schemas
from udfs.table.parquet_files import NO_DATE, PARTITION, RangeFiles, TableFile, WriteFiles, WrittenFile, dataset_of

TIME_ZONE = "rocketmq.timeZone"
IDENTITY = (
    "commit_log_offset", "size", "topic", "queue_id", "queue_offset", "store_timestamp", "body_crc", "magic_code",
)  # fmt: skip
"""Columns that distinguish two records at the same offset of different logs."""

REQUIRED = ("cluster", "broker", "store_date", *IDENTITY)
"""Columns that every such table has; all others are added if missing."""

_FEATURES = frozenset({
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
    "deletionVectors", "v2Checkpoint", "timestampNtz", "variantType",
})  # fmt: skip
"""Features with which delta-rs 1.6 commits, tested with Spark's tables (see also ``commits.obstacle``)."""

_NEAR = 64 << 20
_COMMIT_RETRIES = 20
_VERSIONS_A_CHECKPOINT = 10
"""Without ``delta.checkpointInterval``, as Delta does."""
_VERSION = re.compile(r"\d{20}\.(.+\.)?(json|parquet)")
_TROUBLE = ("PermissionDenied", "Permission denied", "Operation not permitted", "NotADirectory", "Not a directory",
            "No space left", "StorageFull", "Read-only file system", "ReadOnlyFilesystem")  # fmt: skip

_LOST = re.compile(r"[Nn]ot found|NotFound|NOT_FOUND|NOT_EXIST|No such file|not what Delta's log says")
_LOST_FILE = (
    "put the file back (from a backup, or the object's versions); or delete what is left of it, take it out of the"
    " table (delta-rs: DeltaTable(...).repair(), Databricks: FSCK REPAIR TABLE), and `load` names its --repair-from"
)

_OPTION_OF_SETTING = {"endpoint_override": "aws_endpoint_url", "region": "aws_region"}


class NoTable(Exception):
    """delta-rs finds no readable table."""


class MessagesTable:
    """One version of a table; NoTable if delta-rs cannot read it."""

    def __init__(self, path: str) -> None:
        self.path = locations.absolute(path)
        uri, options = place_of(self.path)
        refuse_irregular_log(self.path)
        try:
            self._table = deltalake.DeltaTable(uri, storage_options=options)
        except (exceptions.DeltaError, OSError) as error:
            raise NoTable(files.first_line(error)) from error

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def properties(self) -> dict[str, str]:
        return {name: value for name, value in self._table.metadata().configuration.items() if value is not None}

    @property
    def time_zone(self) -> str:
        """Time zone whose midnight divides ``store_date``."""
        try:
            return options.time_zone(self.properties.get(TIME_ZONE, "UTC"))
        except argparse.ArgumentTypeError as error:
            raise NotAStore(f"the table's property {TIME_ZONE}: {error}", path=self.path) from error

    @cached_property
    def schema(self) -> pa.Schema:
        with reading(self.path):
            return pa.schema(self._table.schema())

    def obstacle(self) -> str | None:
        protocol = self._table.protocol()
        unknown = {*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _FEATURES
        if unknown:
            return f"the table feature {min(unknown)}"
        return commits.obstacle(
            self.properties, self._table.schema().to_json(), self._table.metadata().partition_columns
        )

    def transaction(self, name: str) -> int | None:
        """What an application recorded last, unless it has expired."""
        with reading(self.path):
            return self._table.transaction_version(name)

    def history(self) -> Iterator[dict[str, Any]]:
        """Commits that Delta's log still has, newest first."""
        seen = 0
        for most in (10, None):  # mostly the newest ones tell
            with reading(self.path):
                found = self._table.history(most)
            yield from found[seen:]
            seen = len(found)

    @property
    def is_plain(self) -> bool:
        """Its files are its rows."""
        return bool(self._table.protocol().min_reader_version == 1)

    def state(self, cluster: str, broker: str) -> BrokerState | None:
        found = commits.recorded_state(self.transaction, cluster, broker)
        if found is not None:
            return found
        # A copy of a table (CTAS, CLONE) has the rows and not their transactions.
        rows = self.answer("SELECT max(commit_log_offset + size) AS loaded FROM mine", cluster, broker)
        (end,) = rows["loaded"].to_pylist()
        return None if end is None else BrokerState(int(end), 0, recorded=False)

    def last_rows(self, cluster: str, broker: str, below: int, count: int) -> list[dict[str, Any]]:
        """Last rows of a broker below an offset, newest first: their ``IDENTITY``."""
        newest = f"SELECT {', '.join(IDENTITY)} FROM mine ORDER BY commit_log_offset DESC LIMIT {count}"
        near = max(below - _NEAR, 0)
        found: list[dict[str, Any]] = self.answer(newest, cluster, broker, near, below).to_pylist()
        if len(found) < count and near:
            found = self.answer(newest, cluster, broker, 0, below).to_pylist()
        return found

    def last_row(self, cluster: str, broker: str, below: int) -> dict[str, Any] | None:
        return next(iter(self.last_rows(cluster, broker, below, 1)), None)

    def answer(self, question: str, cluster: str, broker: str, begin: int = 0, end: int = 1 << 62) -> pa.Table:
        """Answer an SQL question (DataFusion) about ``mine``, a broker's rows at offsets [begin, end)."""
        of_broker = "cluster = '{}' AND broker = '{}'".format(*(text.replace("'", "''") for text in (cluster, broker)))
        mine = f"SELECT * FROM messages WHERE {of_broker} AND commit_log_offset BETWEEN {begin} AND {end - 1}"
        _ = self.files  # looked at before delta-rs opens them
        query = deltalake.QueryBuilder().register("messages", self._table)
        with reading(self.path):
            stream = query.execute(f"WITH mine AS ({mine}) {question}")
            found = pa.RecordBatchReader.from_stream(stream).read_all()
            own = self.schema
            fields = [own.field(one.name) if one.name in own.names else one for one in found.schema]
            return found.cast(pa.schema(fields)).combine_chunks()

    @property
    def paths_name_partitions(self) -> bool:
        """Each file's path names its partition, as ``load`` writes it."""
        return all(
            file.name.split("/")[:-1]
            == [f"{name}={NO_DATE if value is None else value}" for name, value in file.values.items()]
            for file in self.files
        )

    @cached_property
    def files(self) -> list[TableFile]:
        """Files according to Delta's log; MissingInput for pipes and the like, which would block a reader."""
        columns = self._table.metadata().partition_columns
        with reading(self.path):
            found = [
                TableFile(
                    known["path"], self._place_of(known["path"]), known["size_bytes"],
                    {name: known.get(f"partition.{name}") for name in columns},
                    known.get("min.commit_log_offset"), known.get("max.commit_log_offset"),
                )
                for known in pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
            ]  # fmt: skip
        for file in found:
            if locations.is_local(file.path) and files.size_of(file.path) is None and files.exists(file.path):
                raise MissingInput("this is not a regular file", path=file.path)
        return found

    def _place_of(self, name: str) -> str:
        path = unquote(name)
        if not urlsplit(name).scheme:
            return locations.join(self.path, path)
        if path.startswith("file:"):
            return path.removeprefix("file:").removeprefix("//")
        return path + locations.split_settings(self.path)[1]  # what opens the table's place opens that, too

    def replaced_files(self, what: BrokerRows, write: WriteFiles) -> tuple[list[RemoveAction], list[WrittenFile]]:
        """Removals of the files with rows that a repair replaces, and new files of their other rows."""
        if self.properties.get("delta.appendOnly", "false").lower() == "true":
            raise Refused("delta.appendOnly keeps the rows that a repair replaces", path=self.path)
        with reading(self.path):
            marked = pa.table(self._table.deletion_vectors()).num_rows
        if marked:
            advice = "REORG TABLE ... APPLY (PURGE) writes them without"
            raise Refused("files of the table have deletion vectors", path=self.path, advice=advice)
        of_broker = (pc.field("cluster") == what.cluster) & (pc.field("broker") == what.broker)
        replaced = of_broker & (pc.field("commit_log_offset") >= what.begin)
        removed: list[RemoveAction] = []
        kept: list[WrittenFile] = []
        with ExitStack() as streams:
            for number, file in enumerate(self.files):
                if file.largest is not None and file.largest < what.begin:
                    continue
                with reading(self.path):
                    (fragment,) = dataset_of([file], self.schema).get_fragments()
                    if not fragment.count_rows(filter=replaced):
                        continue
                values = {name: None if value is None else str(value) for name, value in file.values.items()}
                removed.append(RemoveAction(file.name, True, int(time.time() * 1000), file.size, values))
                other = RangeFiles(write, number, streams)
                for group in fragment.split_by_row_group():  # the bodies of a compacted file may exceed memory
                    with reading(self.path):
                        rows = group.to_table(self.schema, filter=~replaced | replaced.is_null())
                    # Their runs are not known: the rows that came next go. A column that a file lacks is NULL.
                    other.write(rows.drop_columns(list(schemas.RUNS)))
                kept += other.finish()
        return removed, kept

    def with_columns(self, wanted: Sequence[str]) -> tuple[MessagesTable, list[str]]:
        """Add missing columns in a commit; returns the table and the added names. Raises Overtaken."""
        present = {name.lower() for name in self.schema.names}
        missing = [name for name in wanted if name not in present]
        if not missing:
            return self, []
        added = list(deltalake.Schema.from_arrow(schemas.select(missing)).fields)
        with _writing(self.path):
            self._table.alter.add_columns(added, commit_properties=CommitProperties(max_commit_retries=0))
        return MessagesTable(self.path), missing

    def append(
        self, written: Sequence[WrittenFile], what: BrokerRows, seen: BrokerState | None, topics: Sequence[str],
        removed: Sequence[RemoveAction] = (),
    ) -> Commit:  # fmt: skip
        """Commit added and removed files. Raises Overtaken if the broker's state is not as ``seen``."""
        recorded = commits.recorded_state(self.transaction, what.cluster, what.broker)
        if recorded != (seen if seen and seen.recorded else None) or self.obstacle() is not None:
            raise Overtaken(f"{what.cluster}/{what.broker} was loaded meanwhile, or the table was changed")
        rows = sum(file.rows for file in written)
        size = sum(file.size for file in written)
        metrics = {"numFiles": str(len(written)), "numOutputBytes": str(size), "numOutputRows": str(rows)}
        now = int(time.time() * 1000)
        added = [
            AddAction(file.path, file.size, {PARTITION: file.store_date}, now, True, file.statistics)
            for file in written
        ]
        transactions = commits.recorded_by(what, topics, self.transaction)
        properties = CommitProperties(
            custom_metadata={"userMetadata": json.dumps(what.metadata), "operationMetrics": metrics},
            max_commit_retries=0 if removed else _COMMIT_RETRIES,
            app_transactions=[Transaction(name, version, now) for name, version in transactions.items()],
        )
        with _writing(self.path):
            self._table.create_write_transaction(
                [*added, *removed], "append", self._table.schema(), list(schemas.PARTITION_COLUMNS),
                commit_properties=properties,
            )  # fmt: skip
        with suppress(exceptions.DeltaError, OSError):  # the commit stands; a checkpoint is left to a later load
            self._table.update_incremental()
            if self.version % _VERSIONS_A_CHECKPOINT == 0 and "delta.checkpointInterval" not in self.properties:
                self._table.create_checkpoint()
        return Commit(self.version, rows, any(file.delayed for file in written))


def open_table(path: str, *, writes: bool = False) -> MessagesTable | None:
    """The table at a path, None if the path is free; with ``writes`` MissingInput if ``load`` cannot write into it."""
    try:
        table = MessagesTable(path)
    except NoTable as error:
        if _is_free(path):
            return None
        try:  # a load that makes the table at this moment has made Delta's directory first
            table = MessagesTable(path)
        except NoTable:
            if _has_version(path):
                raise MissingInput(f"the table cannot be read: {error}", path=path) from error
            raise NotAStore("this exists and is not a Delta table", path=path) from error
    _check_columns(table)
    if writes and (found := table.obstacle()) is not None:
        raise MissingInput(
            f"the table has {found}, and `load` cannot write into one with that", path=path,
            advice="load into a new --table, which may be read together with this one, or drop that of this one",
        )  # fmt: skip
    return table


def refuse_irregular_log(table: str) -> None:
    """Refuse what is no file of Delta's log: delta-rs waits for a pipe, and reads a file without an end to its end."""
    log = files.list_directory(locations.join(table, "_delta_log")) if locations.is_local(table) else ()
    for entry in log or ():
        too_large = entry.size > READ_WHOLE and not entry.name.endswith(".parquet")
        if too_large or (entry.size < 0 and not entry.is_directory):
            raise NotAStore("this is not a file of Delta's log", path=entry.path)


def _is_free(path: str) -> bool:
    """True if a table can be created: nothing is there, or only a ``_delta_log`` without a version."""
    names = [entry.name for entry in files.list_directory(path) or ()]
    return not names or (names == ["_delta_log"] and not _has_version(path))


def _has_version(path: str) -> bool:
    log = files.list_directory(locations.join(path, "_delta_log")) or ()
    return any(_VERSION.fullmatch(entry.name) for entry in log)


def _check_columns(table: MessagesTable) -> None:
    types = {field.name.lower(): field.type for field in table.schema}
    missing = [name for name in REQUIRED if name not in types]
    if missing:
        raise NotAStore(f"this Delta table is not `messages`: it has no column {missing[0]}", path=table.path)
    for field in schemas.MESSAGES_WITH_BODY:
        if types.get(field.name, field.type) != field.type:
            raise NotAStore(
                f"this Delta table is not `messages`: the type of {field.name} is wrong",
                path=table.path, found=str(types[field.name]), expected=str(field.type),
            )  # fmt: skip


def create_table(path: str, *, time_zone: str, bodies: bool) -> MessagesTable:
    """Create the table unless it exists; Overtaken if another load is creating it."""
    uri, options = place_of(path)
    properties = {TIME_ZONE: time_zone, "delta.dataSkippingStatsColumns": ",".join(schemas.STATISTICS_COLUMNS)}
    files.make_directory(path)
    with _writing(path):
        deltalake.DeltaTable.create(
            uri, schemas.messages(bodies=bodies), mode="ignore",
            partition_by=list(schemas.PARTITION_COLUMNS), configuration=properties, storage_options=options,
            raise_if_key_not_exists=False,
        )  # fmt: skip
    try:
        return MessagesTable(path)
    except NoTable as error:
        raise Overtaken(f"the table was changed meanwhile: {error}") from error


def refuse_time_zone(table: MessagesTable, asked: str | None) -> str:
    """The table's time zone; Refused if another one is asked for."""
    if asked is not None and asked != table.time_zone:
        what = "the dates of the table are those of another time zone"
        raise Refused(what, path=table.path, found=asked, expected=table.time_zone)
    return table.time_zone


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn read errors of a table's files into MissingInput."""
    try:
        yield
    except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
        raise unreadable(path, files.first_line(error)) from error


def unreadable(path: str, what: str) -> MissingInput:
    """The error of an unreadable table, with advice if a data file is lost."""
    lost = _LOST.search(what) is not None and "_delta_log" not in what
    return MissingInput(f"the table cannot be read: {what}", path=path, advice=_LOST_FILE if lost else None)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Turn a lost race into Overtaken, other errors into WriteFailed."""
    try:
        yield
    except exceptions.CommitFailedError as error:
        raise Overtaken(str(error)) from error
    except (exceptions.DeltaError, OSError) as error:
        text = str(error)
        if "already exists" in text:
            raise Overtaken(files.first_line(error)) from error
        sign = next((sign for sign in _TROUBLE if sign in text), None)
        raise WriteFailed(f"the table cannot be written: {sign or files.first_line(error)}", path=path) from error


def place_of(path: str) -> tuple[str, dict[str, str]]:
    """URI and options for delta-rs; UsageError for a local path that delta-rs would decode."""
    if locations.is_local(path):
        if escape := re.search("%[0-9A-Fa-f]{2}", locations.local_path(path)):
            raise UsageError(
                f"delta-rs takes {escape[0]} in the path of a table for another character: {path}",
                advice="give the directory another name",
            )
        return locations.local_path(path), {}
    plain, settings = locations.split_settings(path)
    scheme, _, rest = plain.partition("://")
    given = dict(parse_qsl(settings.removeprefix("?")))
    who, _, rest = rest.rpartition("@")
    if scheme in ("s3", "s3a"):
        return f"s3://{rest}", _options_of_s3(who, given)
    if scheme.startswith("abfs"):
        return _azure(who, rest, given)
    return f"{scheme}://{rest}", {"google_skip_signature": "true"} if scheme == "gs" and who == "anonymous" else {}


def _options_of_s3(who: str, given: dict[str, str]) -> dict[str, str]:
    options = {option: given[name] for name, option in _OPTION_OF_SETTING.items() if name in given}
    if "aws_endpoint_url" in options and "://" not in options["aws_endpoint_url"]:
        options["aws_endpoint_url"] = f"{given.get('scheme', 'https')}://{options['aws_endpoint_url']}"
    if who:
        key_id, _, secret = who.partition(":")
        options |= {"aws_access_key_id": unquote(key_id), "aws_secret_access_key": unquote(secret)}
    return {**options, "aws_allow_http": "true", "aws_conditional_put": "etag"}


def _azure(who: str, rest: str, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    """For ``abfs://CONTAINER@ACCOUNT.dfs...`` and ``abfs://ACCOUNT@HOST:PORT/CONTAINER``."""
    host, _, key = rest.partition("/")
    name, _, password = who.partition(":")
    options = {"azure_storage_account_key": unquote(password)} if password else {}
    if secret := os.environ.get("AZURE_STORAGE_KEY"):
        options["azure_storage_account_key"] = secret
    if host.endswith((".dfs.core.windows.net", ".blob.core.windows.net")):
        return f"az://{name}/{key}", {**options, "azure_storage_account_name": host.partition(".")[0]}
    scheme = "http" if given.get("enable_tls") == "false" else "https"
    endpoint = {"azure_storage_endpoint": f"{scheme}://{host}/{name}", "allow_http": str(scheme == "http").lower()}
    return f"az://{key}", {**options, **endpoint, "azure_storage_account_name": name}
