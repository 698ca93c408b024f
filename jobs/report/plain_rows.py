"""The rows of a plain table as its checks need them, read once, some row groups at a time.

=============================  =======================================================================================
of every row                   queue, commit-log offset, number in the queue, store time, and the hash of its unique
                               key: 37 bytes, as arrays (``Part``)
of a producer's host           messages, and how many of them were made after they were stored
of retries, dead letters,      all that is asked of them, as a table; with the properties in columns of their names
delayed and transactional
messages (``tracked``)
=============================  =======================================================================================

Of properties only the names are read, unless a row group has one of interest. What a table of ours never has (NULL in
columns that are always set, columns that a file lacks) is Spark's affair, and so is what is too much for the memory of
one process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from jobs.report.grouping import Hashes, group_numbers, run_starts, text_hashes, whole_number
from jobs.table.messages_table import MessagesTable
from storeformat.arrays import Bools, Int64s
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.pending import DEAD_PREFIX, HALF_TOPICS, HOLDING_TOPICS, OP_TOPICS, RETRY_PREFIX
from udfs.table.schemas import BODY, MESSAGES, TIMESTAMP

MOST_ROWS = 20_000_000
"""Of a table, some 2 GB of memory; of more Spark tells."""
MOST_TRACKED = 2_000_000
"""Of rows that are kept in full; of more Spark tells."""

GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
_TRACKED_TOPICS = frozenset({*HOLDING_TOPICS, *OP_TOPICS, GIVEN_UP_TOPIC})
_COPIED_TOPICS = frozenset({SCHEDULE_TOPIC, *HALF_TOPICS})
"""Topics in which the broker itself stores messages once more."""

_NEVER_NULL = (
    "topic", "queue_id", "queue_offset", "commit_log_offset", "transaction_type", "reconsume_times", "dispatched",
    "born_host",
)  # fmt: skip
_OF_ALL = (*_NEVER_NULL, "cluster", "broker", "store_timestamp", "born_timestamp", "uniq_key")
_OF_TRACKED = ("size", "tags", "tags_code", "offset_msg_id", "prepared_transaction_offset")
_KEPT = (
    "topic", "queue_id", "queue_offset", "commit_log_offset", "transaction_type", "reconsume_times", "dispatched",
    "store_timestamp", "born_timestamp", "uniq_key",
)  # fmt: skip
READ = (*_OF_ALL, *_OF_TRACKED, "properties")
"""All columns that are read."""
NAMES, VALUES = "names of properties", "values of properties"
_DICTIONARIES = ["topic", "cluster", "broker", "transaction_type", "born_host"]

NO_TIME = np.iinfo(np.int64).min
NO_NUMBER = np.iinfo(np.int64).min
"""What follows a number that has no next one."""

Result = TypeVar("Result")


class AskSpark(Exception):
    """The table is not one that these checks know; the message says why."""


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file of the table; ``known`` are the values of columns that the file itself does not have."""

    fragment: pads.ParquetFileFragment
    number: int
    known: Mapping[str, Any]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.fragment.metadata.row_group(self.number).num_rows)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Returns columns, each of one chunk; some texts as dictionaries. ``NAMES`` and ``VALUES`` are those of the
        properties, either of which comes as ``properties``.
        """
        leaves = self.fragment.metadata.schema
        paths = [leaves.column(number).path for number in range(len(leaves))]
        names, values = (path for path in paths if path.startswith("properties."))
        inside = [column for column in columns if column not in self.known]
        encoded = [*(column for column in _DICTIONARIES if column not in self.known), names]
        wanted = [{NAMES: names, VALUES: values}.get(column, column) for column in inside]
        with self.fragment.filesystem.open_input_file(self.fragment.path) as stream:
            file = pq.ParquetFile(
                stream, metadata=self.fragment.metadata, read_dictionary=encoded, pre_buffer=True,
                coerce_int96_timestamp_unit="us",
            )  # fmt: skip
            found = file.read_row_group(self.number, columns=wanted).unify_dictionaries().combine_chunks()
        for name in columns:
            if name in self.known:
                found = found.append_column(name, [self._repeated(name)])
        return found

    def _repeated(self, name: str) -> pa.Array:
        """Returns a column that has one value, as a dictionary where it would be read as one."""
        field = MESSAGES.field(name)
        value = pa.scalar(self.known[name], field.type)
        if name not in _DICTIONARIES:
            return pa.repeat(value, self.rows)
        known = pa.array([value.as_py()] if value.is_valid else [], field.type)
        number = pa.scalar(0 if value.is_valid else None, pa.int32())
        return pa.DictionaryArray.from_arrays(pa.repeat(number, self.rows), known)


class Numbers:
    """Numbers for values in the order in which they come, from 0 on, for several threads."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}
        self._lock = threading.Lock()

    def of(self, values: Iterable[Any]) -> Int64s:
        """Returns the number of each value."""
        with self._lock:
            return np.array([self.known.setdefault(value, len(self.known)) for value in values], np.int64)


@dataclass(frozen=True)
class Part:
    """The rows of one row group. ``hashed`` are the places of those that have a hash: a unique key that may be there
    twice only by accident. ``counts`` says how many numbers of its queue each row takes, None where each takes one.
    """

    group: RowGroup
    queues: npt.NDArray[np.int32]
    offsets: Int64s
    stored: Int64s
    numbers: Int64s
    counts: Int64s | None
    dispatched: Bools
    hashed: npt.NDArray[np.int32]
    hashes: Hashes
    hosts: pa.Table
    tracked: pa.Table

    @property
    def following(self) -> Int64s:
        """The number that should follow in the queue, NO_NUMBER after the last of 64 bits."""
        with np.errstate(over="ignore"):
            if self.counts is None:
                return self.numbers + 1
            found = self.numbers + self.counts
        return np.where((self.counts > 0) & (found < self.numbers), NO_NUMBER, found)


_QUEUE = pa.schema({"cluster": pa.string(), "broker": pa.string(), "topic": pa.string(), "queue_id": pa.int32()})


@dataclass(frozen=True)
class TableRows:
    """What was read of a table: ``queues`` has cluster, broker, topic and queue id at each queue's number."""

    parts: Sequence[Part]
    queues: pa.Table

    def all_of(self, name: str) -> npt.NDArray[Any]:
        """Returns a column of every row."""
        return np.concatenate([getattr(part, name) for part in self.parts])

    @cached_property
    def broker_of(self) -> Int64s:
        """The broker's number at each queue's number."""
        return group_numbers(self.queues, ["cluster", "broker"])

    @cached_property
    def tracked(self) -> pa.Table:
        """The rows of retries, dead letters, delayed and transactional messages, with ``broker`` as a number."""
        rows = pa.concat_tables([part.tracked for part in self.parts]).combine_chunks()
        queues = np.asarray(rows["queue"])
        return rows.set_column(rows.column_names.index("queue"), "broker", [pa.array(self.broker_of[queues])])


def read_rows(table: MessagesTable) -> TableRows:
    """Returns the rows of a table, None of its own files being open afterwards; raises AskSpark."""
    groups = []
    for fragment in table.rows().get_fragments():
        known = pads.get_partition_keys(fragment.partition_expression)
        if not set(READ) <= {*known, *fragment.physical_schema.names}:
            raise AskSpark("a file lacks columns")
        groups += [RowGroup(fragment, number, known) for number in range(fragment.num_row_groups)]
    groups = [group for group in groups if group.rows]
    if sum(group.rows for group in groups) > MOST_ROWS:
        raise AskSpark(f"there are more than {MOST_ROWS:,} rows")
    queues, bodies = Numbers(), table.has([BODY])
    left = [MOST_TRACKED]

    def read(group: RowGroup) -> Part:
        part = _part(group, queues, bodies=bodies)
        left[0] -= len(part.tracked)
        if left[0] < 0:
            raise AskSpark(f"more than {MOST_TRACKED:,} messages are retries, delayed or transactional")
        return part

    parts = side_by_side(read, groups)
    names = [dict(zip(_QUEUE.names, queue, strict=True)) for queue in queues.known]
    return TableRows(parts, pa.Table.from_pylist(names, _QUEUE))


def side_by_side(work: Callable[[Any], Result], items: Iterable[Any]) -> list[Result]:
    """Returns what ``work`` gives for each item, done in threads: Arrow and numpy hold no lock."""
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as threads:
        futures = [threads.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _part(group: RowGroup, known: Numbers, *, bodies: bool) -> Part:
    rows = group.read((*_OF_ALL, NAMES))
    if any(rows[name].null_count for name in _NEVER_NULL) or rows["properties"].null_count:
        raise AskSpark("a value is missing that a message always has")
    topic, topics = _codes(rows["topic"])
    named = np.array([str(name) for name in topics])
    properties = Properties(rows["properties"])
    dispatched = np.asarray(rows["dispatched"])
    plain = np.asarray(pc.equal(rows["transaction_type"], "none"))
    dead, retried = (np.char.startswith(named, start)[topic] for start in (DEAD_PREFIX, RETRY_PREFIX))
    tracked = np.isin(named, list(_TRACKED_TOPICS))[topic] | dead | retried | ~plain
    if tracked.any() or properties.have(TELLING):
        columns = (*_OF_TRACKED, VALUES)
        operations = bodies and np.isin(named, OP_TOPICS)[topic].any()
        more = group.read((*columns, BODY) if operations else columns)
        properties.add_values(more["properties"])
    else:
        more = None
    delayed = properties.given("DELAY") | properties.given("TIMER_OUT_MS")
    tracked |= delayed & dispatched
    numbers = np.asarray(rows["queue_offset"])
    numbers, counts = _numbered(numbers, properties)
    copied = np.char.startswith(named, "rmq_sys_")[topic] | np.isin(named, list(_COPIED_TOPICS))[topic] | retried
    keys = rows["uniq_key"].combine_chunks()
    hashed = np.flatnonzero(dispatched & ~copied & np.asarray(keys.is_valid()))
    cluster, clusters = _codes(rows["cluster"])
    seeds = np.array([[hash((one, other)) for other in topics] for one in clusters], np.int64).view(np.uint64)
    queues = _queues(rows, cluster, clusters, topic, topics, known)
    first = (np.asarray(rows["reconsume_times"]) == 0) & plain & ~delayed & ~properties.given("TRAN_MSG") & ~dead
    return Part(
        group=group,
        queues=queues.astype(np.int32),
        offsets=np.asarray(rows["commit_log_offset"]),
        stored=_micros(rows["store_timestamp"]),
        numbers=numbers,
        counts=counts,
        dispatched=dispatched,
        hashed=hashed.astype(np.int32),
        hashes=text_hashes(keys.take(pa.array(hashed)), seeds[cluster[hashed], topic[hashed]]),
        hosts=_hosts(rows, first),
        tracked=_tracked(rows, more, properties, queues, np.flatnonzero(tracked)),
    )


def _codes(column: pa.ChunkedArray) -> tuple[Int64s, list[Any]]:
    """Returns a code for each row, and the values at the codes; NULL is the last one."""
    (array,) = column.chunks
    codes = array.indices.fill_null(len(array.dictionary))
    return np.asarray(codes).astype(np.int64), [*array.dictionary.to_pylist(), None]


def _micros(times: pa.ChunkedArray) -> Int64s:
    return np.asarray(times.cast(TIMESTAMP).cast(pa.int64()).fill_null(NO_TIME))


def _queues(
    rows: pa.Table, cluster: Int64s, clusters: list[Any], topic: Int64s, topics: list[Any], known: Numbers
) -> Int64s:
    """Returns the number of each row's queue."""
    broker, brokers = _codes(rows["broker"])
    code = (cluster * len(brokers) + broker) * len(topics) + topic
    code = code << 32 | np.asarray(rows["queue_id"]).view(np.uint32)
    starts = run_starts(code)
    distinct, places = np.unique(code[starts], return_inverse=True)
    ids = (distinct & 0xFFFFFFFF).astype(np.uint32).view(np.int32).tolist()
    places_of = [(one // len(topics), one % len(topics)) for one in (distinct >> 32).tolist()]
    numbers = known.of(
        (clusters[pair // len(brokers)], brokers[pair % len(brokers)], topics[name], number)
        for (pair, name), number in zip(places_of, ids, strict=True)
    )
    return np.repeat(numbers[places.reshape(-1)], np.diff([*starts, len(code)]))


def _numbered(numbers: Int64s, properties: Properties) -> tuple[Int64s, Int64s | None]:
    """Returns the number of each row in its queue, and how many it takes; an inner batch is one row with many."""
    batches = np.flatnonzero(properties.given("INNER_BASE"))
    if not len(batches):
        return numbers, None
    numbers, counts = numbers.copy(), np.ones(len(numbers), np.int64)
    given = (properties.of(name, batches).to_pylist() for name in ("INNER_BASE", "INNER_NUM"))
    for row, base, count in zip(batches.tolist(), *given, strict=True):
        first, many = whole_number(base), whole_number(count, 32)
        if first is not None and many is not None:
            numbers[row], counts[row] = first, many
            if first + many <= NO_NUMBER:
                raise AskSpark("queue offsets reach the last of 64 bits")
    return numbers, counts


def _hosts(rows: pa.Table, first: Bools) -> pa.Table:
    """Returns the messages of each host, and of those from the future how many, and the least time they took (ms)."""
    stored, born = _micros(rows["store_timestamp"]), _micros(rows["born_timestamp"])
    first = first & (stored != NO_TIME) & (born != NO_TIME)
    host, _ = _codes(rows["born_host"])
    names = rows["born_host"].chunk(0).dictionary
    ahead = np.flatnonzero(first & (stored < born))
    least = np.zeros(len(names), np.int64)
    np.minimum.at(least, host[ahead], stored[ahead] // 1000 - born[ahead] // 1000)
    return pa.table({
        "host": names,
        "messages": np.bincount(host[first], minlength=len(names)),
        "from_the_future": np.bincount(host[ahead], minlength=len(names)),
        "min_ms": least,
    })  # fmt: skip


def _tracked(rows: pa.Table, more: pa.Table | None, properties: Properties, queues: Int64s, which: Int64s) -> pa.Table:
    at = pa.array(which)
    columns: dict[str, Any] = {"queue": pa.array(queues[which])}
    for name in _KEPT:
        column = rows[name].combine_chunks().take(at)
        columns[name] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    for name in ("store_timestamp", "born_timestamp"):
        columns[name] = columns[name].cast(TIMESTAMP)
    types = {"size": pa.int32(), "tags_code": pa.int64(), "prepared_transaction_offset": pa.int64(), BODY: pa.binary()}
    for name in (*_OF_TRACKED, BODY):
        absent = more is None or name not in more.column_names
        columns[name] = pa.nulls(len(at), types.get(name, pa.string())) if absent else more[name].take(at)  # type: ignore[index]
    columns |= {name: properties.of(name, which) for name in PROPERTIES}
    return pa.table(columns)


PROPERTIES = (
    "INNER_BASE", "INNER_NUM", "DELAY", "TIMER_OUT_MS", "TRAN_MSG", "REAL_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC",
    "TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES", "__transactionId__", "PGROUP", "TRANS_OFFSET",
)  # fmt: skip
TELLING = ("INNER_BASE", "DELAY", "TIMER_OUT_MS", "TRAN_MSG")
"""Properties for whose sake those of any row are looked at."""


class Properties:
    """The properties of interest of a row group's rows: first their names, then their values, too."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        (self._lists,) = column.chunks
        (names,) = self._lists.flatten().flatten()
        of_code = pc.index_in(names.dictionary, value_set=pa.array(PROPERTIES)).fill_null(-1)
        self._pairs_of = np.append(np.asarray(of_code), -1)[np.asarray(names.indices)]
        self._values: pa.Array | None = None

    def have(self, names: Iterable[str]) -> bool:
        """Whether any row may have one of these."""
        return bool(np.isin([PROPERTIES.index(name) for name in names], self._pairs_of).any())

    def add_values(self, column: pa.ChunkedArray) -> None:
        """Takes the values; a NULL is as good as none."""
        (self._values,) = column.chunk(0).flatten().flatten()
        if self._values.null_count:
            self._pairs_of = np.where(np.asarray(self._values.is_valid()), self._pairs_of, -1)

    @cached_property
    def _rows_of(self) -> Int64s:
        return np.asarray(pc.list_parent_indices(self._lists)).astype(np.int64)

    def given(self, name: str) -> Bools:
        """Returns which rows have a property."""
        found = np.zeros(len(self._lists), bool)
        if self._values is not None:
            found[self._rows_of[self._pairs_of == PROPERTIES.index(name)]] = True
        return found

    def of(self, name: str, rows: Int64s) -> pa.Array:
        """Returns a property of some rows."""
        if self._values is None or not len(rows):
            return pa.nulls(len(rows), pa.string())
        places = np.full(len(self._lists), -1, np.int64)
        pairs = np.flatnonzero(self._pairs_of == PROPERTIES.index(name))
        places[self._rows_of[pairs]] = pairs
        return self._values.take(pa.array(places[rows], mask=places[rows] < 0))
