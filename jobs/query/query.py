"""``query``: the broker's answers, offline; ``--scan`` reads the log itself, without queues and index."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.consumer_offsets.lag import committed_offsets, lag_rows, totals_of
from jobs.contract import options as asked
from jobs.contract.report import Report, counted
from jobs.contract.reporter import Reporter
from jobs.log.opening import counting_task, open_store, read_log, with_queue_store
from jobs.log.restored_log import filled
from jobs.query.offline_store import OfflineStore, RocksDbStore, plain_row, row_rules
from jobs.query.queue_listing import Listing, half_places, split_waiting
from jobs.spark import session
from jobs.spark.runner import Runner
from storeformat.errors import Refused, UsageError
from storeformat.record import message_ids
from storeformat.record.pending import HOLDING_TOPICS, PREFIXES
from storeformat.storage import files, local_files, locations
from udfs.table.find_messages import FindEndedHalf, FindMessages, FindTime, Wanted
from udfs.table.proven_ranges import ProvenRange, proven_ranges

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
