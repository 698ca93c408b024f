"""``query``: the broker's answers, offline; ``--scan`` reads the log itself, without queues and index."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.consumer_offsets.lag import committed_offsets, lag_rows, totals_of
from jobs.contract import options as asked
from jobs.contract.options import FOREVER, ListOptions
from jobs.contract.report import Report, Reporter, counted
from jobs.log.opening import counting_task, open_store, read_log, with_queue_store
from jobs.log.restored_log import filled
from jobs.query.offline_store import OfflineStore, RocksDbStore, plain_row, row_rules, utc_text
from jobs.spark import session
from jobs.spark.runner import Runner
from storeformat.arrays import Int64s, Structs
from storeformat.errors import MissingInput, Refused, UsageError
from storeformat.kernels import PADDING
from storeformat.log.log_end import growing_log_end
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record import message_ids
from storeformat.record.bodies import uncompressed
from storeformat.record.decode import RecordBlock, decode
from storeformat.record.dispatch import (
    HALF_TOPICS,
    HOLDING_TOPICS,
    OP_TOPICS,
    PREFIXES,
    Pending,
    belongs_to,
    ended_half,
    pending,
)
from storeformat.storage import files, local_files, locations
from udfs.table.find_messages import FindEndedHalf, FindMessages, FindTime, Wanted
from udfs.table.proven_ranges import ProvenRange, proven_ranges
from udfs.table.rows import RowRules, record_batch

AT_ONCE = 64 << 20
"""Bytes of uncompressed bodies in memory at a time."""
_NEAR = 4 << 10
"""Bytes between two records that are cheaper to read than to skip."""
_DECODED_AT_ONCE = 512
"""Records: those after a damaged one are checked again."""
OPEN_HALF = ", waits for its producer to commit it or to roll it back"
_OF_WAITING = (
    "commit_log_offset", "topic", "queue_id", "queue_offset", "tags_code", "properties", "store_timestamp", "uniq_key",
)  # fmt: skip


@dataclass
class Listing:
    """A listing and its counters; ``committed`` has the first queue offset to list of each queue."""

    offline: OfflineStore
    options: ListOptions
    committed: Mapping[int, int] = field(default_factory=dict)
    lost_units: int = 0
    beyond_end: int = 0
    """Units at or beyond the end of the log; a broker's recovery cuts them off."""
    notes: list[str] = field(default_factory=list)

    @cached_property
    def log_end(self) -> int:
        """End of the log by its last segment, or an earlier end from the options."""
        store = self.offline.store
        end, until = growing_log_end(store.segments, store.decode_rules()), store.until(self.options.until_offset)
        return end if until is None else min(end, until)

    def tables(self) -> Iterator[pa.Table]:
        """Messages of the topic, or with ``waiting`` those that wait for it elsewhere, some thousand rows at a time."""
        options, topic = self.options, self.options.topic
        rules = row_rules(self.offline.store, bodies=options.bodies)
        if options.waiting:
            yield from self._waiting(topic, rules)
            return
        queue_ids = self.offline.queue_ids(topic) if options.queue_id is None else [options.queue_id]
        if not queue_ids:
            raise MissingInput(
                "the store has no consume queue of this topic", path=topic,
                advice="inspect lists the topics of the log; --waiting lists messages that were not delivered yet",
            )  # fmt: skip
        last = queue_ids[-1]
        if options.queue_id is None and (absent := last + 1 - len(queue_ids)):
            self.notes.append(f"{absent} queues before {last} are not there: they had no message, or are lost (verify)")
        for table in self._topic(topic, rules, queue_ids):
            yield from _with_plain_bodies(table)

    def _waiting(self, topic: str, rules: RowRules) -> Iterator[pa.Table]:
        ends = self._ends_of_waits(topic, rules)
        for holding in (*HOLDING_TOPICS, *self.offline.topics_with(*PREFIXES)):
            for table in self._topic(holding, rules):
                found = {
                    number: waiting_text(row, waiting, topic) + (OPEN_HALF if waiting.kind == "half" else "")
                    for number, row, waiting in _waiting_rows(table, topic, self.options.queue_id)
                    if not any(ends.get(end, -1) > row["commit_log_offset"] for end in _ends_of(row, waiting))
                }
                if found:
                    part = table.take(pa.array(found)).append_column("waits_for", pa.array(found.values(), pa.string()))
                    yield from _with_plain_bodies(part)

    def _ends_of_waits(self, topic: str, rules: RowRules) -> dict[tuple[Any, Any], int]:
        """Log offset of the last record of each of ``_ends_of`` the messages that wait for a topic, -1 for none."""
        rules, op_rules = replace(rules, columns=_OF_WAITING), replace(rules, columns=(*_OF_WAITING, "body"))
        waits = Listing(self.offline, self.options)
        at_any_time = Listing(self.offline, replace(self.options, begin=0, end=FOREVER))
        ends: dict[tuple[Any, Any], int] = {}
        for table in (table for holding in HOLDING_TOPICS for table in waits._topic(holding, rules)):
            for _, row, waiting in _waiting_rows(table, topic, self.options.queue_id):
                ends |= dict.fromkeys(_ends_of(row, waiting), -1)
        for name in sorted({name for _, name in ends if isinstance(name, str)}):
            queue_ids = self.offline.queue_ids(name)
            if not queue_ids:
                self.notes.append(f"no consume queue of {name}: if it is lost, what was delivered is listed, too")
            for table in at_any_time._topic(name, rules, queue_ids):
                for row in table.select(("uniq_key", "commit_log_offset")).to_pylist():
                    place = (row["uniq_key"], name)
                    if place in ends:
                        ends[place] = max(ends[place], row["commit_log_offset"])
        for table in (table for name in OP_TOPICS for table in at_any_time._topic(name, op_rules)):
            for row in table.to_pylist():
                # as it is stored: no broker compresses it, and a few bytes could ask for gigabytes
                places = ended_half(row["queue_id"], row["body"], dict(row["properties"] or ()))
                ends |= dict.fromkeys(ends.keys() & set(places), row["commit_log_offset"])
        return ends

    def _topic(self, topic: str, rules: RowRules, queue_ids: Sequence[int] | None = None) -> Iterator[pa.Table]:
        for queue_id in self.offline.queue_ids(topic) if queue_ids is None else queue_ids:
            for units in self.offline.units(topic, queue_id, self.committed.get(queue_id, 0)):
                inside = units["phy_offset"] < self.log_end
                self.beyond_end += int((~inside).sum())
                table = self._records(units[inside], rules)
                if table.num_rows:
                    yield table

    def _records(self, units: Structs, rules: RowRules) -> pa.Table:
        order = np.argsort(units["phy_offset"], kind="stable")
        block, found = self._read(units["phy_offset"][order], units["size"][order])
        self.lost_units += len(order) - len(found)
        times = block.heads.store_timestamp
        keep = np.flatnonzero((times >= self.options.begin) & (times <= self.options.end))
        batch = record_batch(_Gathered(**vars(block.take(keep))), rules)
        return pa.Table.from_batches([batch]).take(pa.array(np.argsort(order[found[keep]], kind="stable")))

    def _read(self, offsets: Int64s, sizes: Int64s) -> tuple[RecordBlock, Int64s]:
        """Sound records of the given sizes at these ascending offsets in one buffer, and their numbers."""
        segments = self.offline.store.segments
        places = np.array([segment.base for segment in segments]).searchsorted(offsets, "right") - 1
        ends = offsets + sizes
        inside = np.flatnonzero((places >= 0) & (ends <= np.array([segment.end for segment in segments])[places]))
        apart = (np.diff(places[inside]) != 0) | (offsets[inside][1:] - ends[inside][:-1] > _NEAR)
        windows = [part for part in np.split(inside, np.flatnonzero(apart) + 1) if len(part)]
        lengths = [int(ends[part].max() - offsets[part[0]]) for part in windows]
        data = bytearray(sum(lengths) + PADDING)
        positions = np.full(len(offsets), -1, np.int64)
        at = 0
        with ExitStack() as stack:
            readers: dict[str, files.RangeReader] = {}
            for part, length in zip(windows, lengths, strict=True):
                segment, begin = segments[places[part[0]]], int(offsets[part[0]])
                if segment.path not in readers:
                    readers[segment.path] = stack.enter_context(files.RangeReader(segment.path))
                readers[segment.path].read_into(begin - segment.base, memoryview(data)[at : at + length])
                positions[part] = offsets[part] - begin + at
                at += length
        buffer = np.frombuffer(data, np.uint8)
        left = inside
        stored = buffer[positions[left, np.newaxis] + np.arange(4)].view(">i4")[:, 0]
        left = left[stored == sizes[left]]
        rules, found = self.offline.store.decode_rules(), left[:0]
        while len(left):
            block, fault = decode(buffer, 0, positions[left[:_DECODED_AT_ONCE]], rules)
            found = np.append(found, left[: len(block)])
            left = left[len(block) + (fault is not None) :]
        block, _ = decode(buffer, 0, positions[found], replace(rules, check_crc=False))
        here = block.heads.physical_offset == offsets[found]
        heads = block.heads._replace(defect=np.zeros_like(block.heads.defect))
        return replace(block, heads=heads).take(here), found[here]


@dataclass(frozen=True)
class _Gathered(RecordBlock):
    """Records from many places of the log, already checked against their PHYSICALOFFSET."""

    @property
    def offsets(self) -> Int64s:
        return self.heads.physical_offset


def _with_plain_bodies(table: pa.Table) -> Iterator[pa.Table]:
    """The table in parts of about ``AT_ONCE`` bytes, bodies uncompressed; damaged ones stay as stored."""
    if "body" not in table.column_names:
        yield table
        return
    bodies: list[bytes | None] = []
    begin = size = 0
    column = table.column_names.index("body")
    stored = zip(table["body"].to_pylist(), table["sys_flag"].to_pylist(), strict=True)
    for number, (body, flags) in enumerate(stored):
        bodies.append(body and (uncompressed(body, flags) or body))
        size += len(bodies[-1] or b"")
        if size >= AT_ONCE or number + 1 == table.num_rows:
            part = table.slice(begin, len(bodies))
            yield part.set_column(column, "body", pa.array(bodies, pa.binary()))
            begin, bodies, size = number + 1, [], 0


def _waiting_rows(table: pa.Table, topic: str, queue_id: int | None) -> Iterator[tuple[int, dict[str, Any], Pending]]:
    for number, row in enumerate(map(plain_row, table.select(_OF_WAITING).to_pylist())):
        found = _waiting_for(row, topic)
        if found is not None and queue_id in (None, found.queue_id):
            yield number, row, found


def _ends_of(row: dict[str, Any], waiting: Pending) -> list[tuple[Any, Any]]:
    """What ends a wait: the delivery or a copy that waits instead, by unique key and topic; of a half message also its
    op message, as ``pending.ended_half`` has it.
    """
    if row["topic"] not in HOLDING_TOPICS:
        return []
    topics = {waiting.topics[0]} if row["topic"] == SCHEDULE_TOPIC else {waiting.topics[0], row["topic"]}
    copies = [] if row["uniq_key"] is None else [(row["uniq_key"], name) for name in topics]
    return [*copies, *half_places([row])]


def _waiting_for(row: dict[str, Any], topic: str) -> Pending | None:
    """What a message waits for if it belongs to the topic; None if it is in its own one."""
    found = pending(row["topic"], row["tags_code"], row["properties"])
    return found if found is not None and belongs_to(row["topic"], found, topic) else None


def split_waiting(
    rows: Sequence[dict[str, Any]], topic: str, ended: Mapping[tuple[int, int], int] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows under their topic, and rows that wait for it elsewhere, with ``waits_for``. ``ended``: log offset of the op
    message by queue id and queue offset of ended half messages, None if not looked up.
    """
    own = [row for row in rows if row["topic"] == topic]
    waiting = []
    for row in rows:
        found = _waiting_for(row, topic) if row["topic"] != topic else None
        if found is None:
            continue
        fate = ""
        later = next((other for other in rows if _is_later_copy(other, row)), None)
        if later is not None:
            what = "delivered" if later["topic"] == topic else f"stored again under {later['topic']}"
            fate = f"; {what} at offset {later['commit_log_offset']}"
        elif found.kind == "half" and ended is None:
            fate = ", waits for its producer to commit it, or was rolled back: --scan says which"
        elif found.kind == "half":
            ends = [ended[place] for place in half_places([row]) if ended and place in ended]
            fate = (
                f"; its producer rolled it back, or the broker gave it up, at offset {ends[0]}" if ends else OPEN_HALF
            )
        waiting.append({**row, "waits_for": waiting_text(row, found, topic) + fate})
    return own, waiting


def half_places(rows: Sequence[dict[str, Any]]) -> tuple[tuple[int, int], ...]:
    """Places of the half messages among rows, as in ``pending.ended_half``."""
    half = [row for row in rows if row["topic"] in HALF_TOPICS]
    return tuple(
        place for row in half for place in ((row["queue_id"], row["queue_offset"]), (-1, row["commit_log_offset"]))
    )


def _is_later_copy(other: dict[str, Any], row: dict[str, Any]) -> bool:
    same = row["uniq_key"] is not None and other["uniq_key"] == row["uniq_key"]
    offset = row["commit_log_offset"]
    same |= other["transaction_type"] == "commit" and other["prepared_transaction_offset"] == offset
    return bool(same and other["commit_log_offset"] > offset)


def waiting_text(row: dict[str, Any], waiting: Pending, topic: str) -> str:
    """What a message waits for, in words; the row needs ``store_timestamp_ms``."""
    queue = waiting.topics[0] if waiting.topics else topic
    queue += "" if waiting.queue_id is None else f":{waiting.queue_id}"
    place = f"{row['topic']}:{row['queue_id']} at {row['queue_offset']}"
    due = "" if waiting.due is None else f", delivery due {utc_text(waiting.due)}"
    what = {"retried": f"to be consumed again, in {place}", "dead": f"dead letter in {place}"}
    stored = f"stored {utc_text(row['store_timestamp_ms'] or 0)}{due}"
    return f"{what.get(waiting.kind, f'{waiting.kind} message of {queue}')}: {stored}"


_MOST = 64  # as many entries of the index as a broker looks at
_NOT_IN_INDEX = "the index does not have it; --scan reads the log itself, verify compares both"
_NOTHING_FOUND = {
    "key": _NOT_IN_INDEX,
    "id": _NOT_IN_INDEX,
    "offset": "the queue has no message there; --scan reads the log itself",
    "list": "--waiting lists messages that wait to be delivered to the topic",
    "lag": "no offset is committed for this group",
}


def run(options: asked.QueryOptions, reporter: Reporter) -> Report:
    """Answer the question; exit code 1 if nothing was found."""
    asks_index = not options.scan and isinstance(options, asked.KeyOptions | asked.IdOptions) and options.topic != ""
    store = open_store(options, needs_index_sizes=asks_index, restores=options.scan)
    answer_of = _ANSWERS[options.kind]
    if options.scan:
        with (
            session.runner_for(reporter, "query", store.log_size) as runner,
            filled(store, reporter) as whole,
        ):
            answer = answer_of(options, OfflineStore(whole), runner)
    else:
        store = with_queue_store(store)
        offline = RocksDbStore(store) if store.queues_in.in_rocksdb else OfflineStore(store)
        answer = answer_of(options, offline, None)
    found, notes = answer.pop("found"), answer.pop("notes", [])
    unknown = options.kind == "lag" and any(row["lag"] is None for row in answer["queues"])
    verdict = f"{counted(found, 'queue' if options.kind == 'lag' else 'message')} found" if found else "nothing found"
    figures = f"written to {answer['exported']}" if "exported" in answer else None
    if options.kind == "time" and found:
        verdict = f"queue offset {answer['queue_offset']}"
        figures = f"the queue begins at {answer['min_offset']} and ends before {answer['max_offset']}"
    return reporter.report(
        "query",
        verdict=verdict,
        figures=figures,
        unknown=unknown,
        store=store.root,
        kind=options.kind,
        found=found,
        **answer,
        notes=notes if found else [*notes, *_where_else(options)],
    )


def _where_else(options: asked.QueryOptions) -> list[str]:
    if isinstance(options, asked.IdOptions) and not options.topic:
        return ["no message has this offsetMsgId; the msgId that clients show is a UNIQ_KEY: name its --topic, too"]
    if isinstance(options, asked.TimeOptions):
        return [f"the queue has no message at or {'after' if options.boundary == 'lower' else 'before'} this time"]
    if options.scan or (isinstance(options, asked.ListOptions) and options.waiting):
        return []
    return [_NOTHING_FOUND[options.kind]]


def by_key(options: asked.KeyOptions | asked.IdOptions, offline: OfflineStore, runner: Runner | None) -> dict[str, Any]:
    """Messages under a key, from the index or with ``--scan`` the log, and those still waiting for delivery."""
    if options.scan and runner is not None:
        wanted = Wanted(options.topic, options.key, begin=options.begin, end=options.end, waiting=True)
        ranges = _checked_ranges(options, offline, runner)
        rows = find(options, offline, runner, wanted, ranges)
        task = FindEndedHalf(half_places(rows), row_rules(offline.store, bodies=True))
        ended = runner.map("find what became of half messages", task, ranges) if task.half else ()
        return _messages(*split_waiting(rows, options.topic, dict(ended)))
    offsets, of_topic, others = _indexed_under(options.topic, options, offline)
    held = [row for topic in HOLDING_TOPICS for row in _indexed_under(topic, options, offline)[1]]
    if not of_topic and not held:
        topics = offline.topics_with(*PREFIXES)
        held = [row for topic in topics for row in _indexed_under(topic, options, offline)[1]]
    rows_of_all = sorted([*of_topic, *held], key=lambda row: int(row["commit_log_offset"]))
    answer = _messages(of_topic, split_waiting(rows_of_all, options.topic)[1])
    return {**answer, "commit_log_offsets": offsets, "other_keys_of_the_same_hash": others}


def _indexed_under(
    topic: str, options: asked.KeyOptions | asked.IdOptions, offline: OfflineStore
) -> tuple[list[int], list[dict[str, Any]], int]:
    """Log offsets in the index for the key's hash, rows with the key, and the number of rows with another key."""
    key, most = options.key, options.max_messages or _MOST
    offsets = offline.index_offsets(topic, key, max_num=most, begin=options.begin, end=options.end)
    rows = [row for offset in offsets if (row := offline.record_at(offset, bodies=options.bodies)) is not None]
    of_topic = [row for row in rows if row["topic"] == topic and key in (row["uniq_key"], *(row["keys"] or ()))]
    return offsets, of_topic, len(rows) - len(of_topic)


def by_id(options: asked.IdOptions, offline: OfflineStore, runner: Runner | None) -> dict[str, Any]:
    """The message at the log offset of an offsetMsgId, or under a UNIQ_KEY of a topic."""
    if options.topic:
        return by_key(options, offline, runner)
    parsed = message_ids.parse_offset_message_id(options.message_id)
    if parsed is None:
        raise UsageError("this is not an offsetMsgId", found=options.message_id, advice="a UNIQ_KEY needs --topic")
    row = offline.record_at(parsed.commit_log_offset, bodies=options.bodies)
    return _messages([row] if row is not None and row["offset_msg_id"] == str(parsed) else [])


def by_offset(options: asked.OffsetOptions, offline: OfflineStore, runner: Runner | None) -> dict[str, Any]:
    """The message to which the unit at a queue offset leads."""
    if runner is not None:
        wanted = Wanted(topic=options.topic, queue_id=options.queue_id, queue_offset=options.offset)
        return _messages(find(options, offline, runner, wanted))
    with offline.view(options.topic, options.queue_id) as queue:
        unit = queue.unit(options.offset)
    row = None if unit is None else offline.record_at(int(unit["phy_offset"]), bodies=options.bodies)
    return _messages([row] if row is not None else [])


def by_time(options: asked.TimeOptions, offline: OfflineStore, runner: Runner | None) -> dict[str, Any]:
    """Queue offset of a time, with begin and end of the queue."""
    if runner is None:
        upper = options.boundary == "upper"
        return offline.offset_by_time(options.topic, options.queue_id, options.time, upper=upper)
    rules = row_rules(offline.store, bodies=False)
    task = FindTime(options.topic, options.queue_id, options.time, rules)
    places = runner.map("find a time", task, _checked_ranges(options, offline, runner))
    begin = min((place.first for place in places), default=0)
    end = max((place.end for place in places), default=0)
    later = [place.first_at_or_after for place in places if place.first_at_or_after is not None]
    earlier = [place.last_at_or_before for place in places if place.last_at_or_before is not None]
    within, found = later, min(later, default=end)
    if options.boundary == "upper":
        within, found = earlier, max(earlier, default=begin)
    return {"found": int(bool(within)), "queue_offset": found, "min_offset": begin, "max_offset": end}


def _checked_ranges(options: asked.QueryOptions, offline: OfflineStore, runner: Runner) -> tuple[ProvenRange, ...]:
    task = counting_task(offline.store, with_units=False)
    return proven_ranges(read_log(offline.store, options, runner, task).scans)


def find(
    options: asked.KeyOptions | asked.IdOptions | asked.OffsetOptions,
    offline: OfflineStore,
    runner: Runner,
    wanted: Wanted,
    ranges: Sequence[ProvenRange] = (),
) -> list[dict[str, Any]]:
    """The first wanted messages in log order; ``ranges`` are already checked."""
    most = options.max_messages or _MOST
    task = FindMessages(wanted, row_rules(offline.store, bodies=options.bodies), most)
    found = runner.map("find messages", task, ranges or _checked_ranges(options, offline, runner))
    return [plain_row(row) for row in found[:most]]


def _messages(rows: list[dict[str, Any]], waiting: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    answer = {"found": len(rows) + len(waiting), "messages": rows}
    return {**answer, "waiting": list(waiting)} if waiting else answer


def by_list(options: asked.ListOptions, offline: OfflineStore, runner: Runner | None) -> dict[str, Any]:
    """Messages of a topic in the order of its queues, or exported to a file."""
    if options.not_consumed != (options.group is not None) or (options.not_consumed and options.waiting):
        raise UsageError("--group and --not-consumed go together, and not with --waiting")
    if options.export is not None and not options.export.endswith((".jsonl", ".parquet")):
        raise UsageError("--export takes a file that ends in .jsonl or .parquet", found=options.export)
    if options.export is not None and files.exists(options.export):
        advice = "move it away, or name another one"
        raise Refused("the file of --export exists", path=options.export, advice=advice)
    committed = {} if options.group is None else committed_offsets(offline.store)
    begins = committed.get((options.topic, options.group or ""), {})
    listing = Listing(offline, options, begins)
    tables = _first(listing.tables(), options.max_messages or (None if options.export else _MOST))
    if options.export is not None:
        answer: dict[str, Any] = {"found": export(options.export, tables), "exported": options.export}
    else:
        answer = _messages([plain_row(row, is_compressed=False) for table in tables for row in table.to_pylist()])
    answer["notes"] = listing.notes
    if listing.lost_units:
        answer["lost_units"] = listing.lost_units
        listing.notes.append("some units lead to no sound message: verify says which")
    if listing.beyond_end:
        answer["units_beyond_log"] = listing.beyond_end
        listing.notes.append("some units point beyond the end of the log, and are not listed: verify says which")
    return answer


def _first(tables: Iterator[pa.Table], most: int | None) -> Iterator[pa.Table]:
    left = sys.maxsize if most is None else most
    for table in tables:
        yield table.slice(0, left)
        left -= table.num_rows
        if left <= 0:
            return


def by_lag(options: asked.LagOptions, offline: OfflineStore, runner: Runner | None) -> dict[str, Any]:
    """Lag of each group behind the ends of its queues."""
    rows, notes = lag_rows(offline.store, options.group)
    return {"found": len(rows), "groups": totals_of(rows), "queues": rows, "notes": notes}


_ANSWERS: dict[str, Callable[[Any, OfflineStore, Runner | None], dict[str, Any]]] = {
    "key": by_key,
    "id": by_id,
    "offset": by_offset,
    "time": by_time,
    "list": by_list,
    "lag": by_lag,
}


def export(path: str, tables: Iterable[pa.Table]) -> int:
    """Write rows and return their number; after a failure there is no file."""
    whole = local_files.replacing(locations.local_path(path)) if locations.is_local(path) else files.FileWriter(path)
    with files.writing(path), whole as writer:
        count = 0
        if path.endswith(".parquet"):
            parts = iter(tables)
            first = next(parts, pa.schema([]).empty_table())
            sink = SimpleNamespace(write=writer.write, flush=lambda: None, close=lambda: None, closed=False)
            with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), first.schema, compression="zstd") as parquet:
                for table in chain([first], parts):
                    parquet.write_table(table)
                    count += table.num_rows
            return count
        for row in (row for table in tables for row in table.to_pylist()):
            body = row.pop("body", None)
            plain = plain_row(row)
            if body is not None:
                try:
                    plain["body"] = body.decode()
                except UnicodeDecodeError:
                    plain["body_base64"] = base64.b64encode(body).decode()
            line = json.dumps(plain, ensure_ascii=False, default=str) + "\n"
            writer.write(line.encode("utf-8", "backslashreplace"))
            count += 1
        return count
