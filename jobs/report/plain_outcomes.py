"""What became of messages, without Spark: retries, delays and transactions of a plain table, from the rows ``tracked``
of ``plain_rows``.

Each function does what views do with the same names for the same things: ``retry_ageing``, ``delays`` and
``delay_accuracy``, ``transactions`` and ``transaction_outcomes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.report.grouping import group_numbers, in_order, milliseconds, summed, turns, whole_number, whole_numbers
from jobs.report.plain_rows import GIVEN_UP_TOPIC, NO_TIME
from storeformat.arrays import Bools, Int64s
from storeformat.message import SCHEDULE_TOPIC
from storeformat.record.pending import HALF_TOPICS, OP_TOPICS, PREFIXES, TIMER_TOPIC
from udfs.table.schemas import BODY, TIMESTAMP

_TIMES = (-62135510400000, 253402214400000)
"""Milliseconds in which a time of the table lies: years 1 to 9999 in every time zone."""


def retries(rows: pa.Table) -> pa.Table:
    """Returns the retries and dead letters of each group, topic and attempt (``retry_ageing``)."""
    retry, dead = (pc.starts_with(rows["topic"], start) for start in PREFIXES)
    rows = rows.append_column("retry", retry).filter(pc.or_(retry, dead))
    attempts = pa.table({
        "broker": rows["broker"],
        "consumer_group": pc.if_else(
            rows["retry"], pc.utf8_slice_codeunits(rows["topic"], 7), pc.utf8_slice_codeunits(rows["topic"], 5)
        ),
        "origin_topic": pc.coalesce(rows["DLQ_ORIGIN_TOPIC"], rows["RETRY_TOPIC"]),
        "kind": pc.if_else(rows["retry"], "retry", "dlq"),
        "reconsume_times": rows["reconsume_times"],
        "size": rows["size"],
        "lingered": pc.divide(_between(rows["store_timestamp"], rows["born_timestamp"]).cast(pa.float64()), 1000.0),
        "stored": rows["store_timestamp"],
    })  # fmt: skip
    found = _over_brokers(
        attempts, ["consumer_group", "origin_topic", "kind", "reconsume_times"], messages=(None, "count_all"),
        bytes=("size", "sum"), median_seconds_since_born=("lingered", "median"), oldest_stored=("stored", "min"),
    )  # fmt: skip
    return in_order(found, "consumer_group", "-kind", "reconsume_times", "origin_topic")


def _over_brokers(rows: pa.Table, keys: Sequence[str], **made: tuple[str | None, str]) -> pa.Table:
    """Returns what ``summed`` gives for each broker, added up over brokers: the largest of their medians."""
    found = summed(rows, ["broker", *keys], **made)
    again = {"count_all": "sum", "median": "max"}
    return summed(found, keys, **{name: (name, again.get(how, how)) for name, (_, how) in made.items()})


def _between(later: pa.ChunkedArray, earlier: pa.ChunkedArray) -> pa.Array:
    """Returns the milliseconds between times."""
    return pc.subtract(milliseconds(later), milliseconds(earlier))


# -------------------------------------------------------------------------------------------------------------- delays
_SAME_MESSAGE = ("broker", "real_topic", "uniq_key", "reconsume_times")


def delays(rows: pa.Table, ends: Int64s) -> pa.Table:
    """Returns how many messages of each level came, and how late (``delay_accuracy``); ``ends`` says when each
    broker's last message was stored.
    """
    waiting = _waiting(rows)
    delayed = pc.or_(pc.is_valid(rows["DELAY"]), pc.is_valid(rows["TIMER_OUT_MS"]))
    came = rows.filter(pc.and_(pc.and_(delayed, rows["dispatched"]), pc.equal(rows["REAL_TOPIC"], rows["topic"])))
    came = came.append_column("real_topic", came["topic"])
    at = _matched(waiting, came)
    delivered = at >= 0
    stored = came["store_timestamp"].take(pa.array(at, mask=~delivered))
    due = np.asarray(waiting["due_ms"].fill_null(_TIMES[1]))
    of_calendar = pa.array(due, mask=(due < _TIMES[0]) | (due >= _TIMES[1]))
    late = pc.subtract(milliseconds(stored), of_calendar)
    end = ends[np.asarray(waiting["broker"])]
    later = (end != NO_TIME) & np.asarray(waiting["due_ms"].is_valid()) & (due > end // 1000)
    open_ = ~delivered & ~_recalled(rows, waiting)
    states = pa.table({
        "broker": waiting["broker"],
        "level": waiting["level"],
        "delivered": delivered.astype(np.int64),
        "waiting": (open_ & later).astype(np.int64),
        "overdue": (open_ & ~later).astype(np.int64),
        "late": late,
    })  # fmt: skip
    found = _over_brokers(
        states, ["level"], scheduled=(None, "count_all"), delivered=("delivered", "sum"), waiting=("waiting", "sum"),
        overdue=("overdue", "sum"), min_late_ms=("late", "min"), median_late_ms=("late", "median"),
        max_late_ms=("late", "max"),
    )  # fmt: skip
    return in_order(found, "level")


def _waiting(rows: pa.Table) -> pa.Table:
    """Returns the messages that wait, or did, each once, with ``level``, ``real_topic``, ``due_ms``."""
    own = pc.is_in(rows["topic"], value_set=pa.array([SCHEDULE_TOPIC, TIMER_TOPIC]))
    real = pc.and_(pc.not_equal(rows["REAL_TOPIC"], rows["topic"]), pc.is_null(rows["TIMER_DEL_UNIQKEY"]))
    rows = rows.filter(pc.and_(own, real))
    by_level = pc.equal(rows["topic"], SCHEDULE_TOPIC)
    timed = whole_numbers(rows["TIMER_OUT_MS"].to_pylist())
    none = pa.nulls(len(rows), pa.int32())
    found = pa.table({
        **{name: rows[name] for name in ("broker", "topic", "uniq_key", "reconsume_times", "commit_log_offset")},
        "real_topic": rows["REAL_TOPIC"],
        "level": pc.if_else(by_level, pc.add(rows["queue_id"], pa.scalar(1, pa.int32())), none),
        "due_ms": pc.if_else(by_level, rows["tags_code"], timed),
        "rolled": pc.is_valid(rows["TIMER_ROLL_TIMES"]),
    })  # fmt: skip
    stored = turns(group_numbers(found, [*_SAME_MESSAGE, "topic", "due_ms"]), np.asarray(found["commit_log_offset"]))
    return found.filter(pa.array(~(np.asarray(found["rolled"]) & (stored > 0))))


def _matched(waiting: pa.Table, came: pa.Table) -> Int64s:
    """Returns for each message that waits which came for it, -1 for none: of those with one key the first due is
    matched with the first that came.
    """
    first, groups = len(waiting), _same(waiting, came, _SAME_MESSAGE)
    due = waiting["due_ms"]
    known = np.asarray(due.is_valid())
    offsets = np.asarray(waiting["commit_log_offset"])
    turn = turns(groups[:first], known, np.asarray(due.fill_null(0)), offsets)
    turn_came = turns(groups[first:], np.asarray(came["commit_log_offset"]))
    width = len(groups) + 1
    wanted, given = groups[:first] * width + turn, groups[first:] * width + turn_came
    order = np.argsort(given)
    places = np.searchsorted(given[order], wanted)
    found = np.append(order, -1)[places]
    return np.where(np.append(given, -1)[found] == wanted, found, -1)


def _recalled(rows: pa.Table, waiting: pa.Table) -> Bools:
    """Returns which messages that wait in the timer somebody asked to forget."""
    asked = rows.filter(pc.and_(pc.equal(rows["topic"], TIMER_TOPIC), pc.is_valid(rows["TIMER_DEL_UNIQKEY"])))
    # The key of the message, from 5.3 on after its topic and a plus sign.
    keys = [
        key.removeprefix(f"{topic}+") if topic is not None else key
        for topic, key in zip(asked["REAL_TOPIC"].to_pylist(), asked["TIMER_DEL_UNIQKEY"].to_pylist(), strict=True)
    ]
    asked = pa.table(
        {"broker": asked["broker"], "real_topic": asked["REAL_TOPIC"], "uniq_key": pa.array(keys, pa.string())}
    )
    groups = _same(waiting, asked, ("broker", "real_topic", "uniq_key"))
    may = np.asarray(pc.and_(pc.is_valid(waiting["uniq_key"]), pc.is_null(waiting["level"])))
    return may & np.isin(groups[: len(waiting)], groups[len(waiting) :])


def _same(one: pa.Table, other: pa.Table, keys: tuple[str, ...]) -> Int64s:
    """Returns numbers for the rows of one table and then of the other: the same for the same keys."""
    both = pa.concat_tables([one.select(keys), other.select(keys).cast(one.select(keys).schema)])
    return group_numbers(both, keys)


# -------------------------------------------------------------------------------------------------------- transactions
def transactions(rows: pa.Table) -> pa.Table:
    """Returns how transactions of each producer group and topic ended (``transactions``, ``transaction_outcomes``)."""
    prepared = pc.equal(rows["transaction_type"], "prepared")
    halves = rows.filter(pc.or_(pc.is_in(rows["topic"], value_set=pa.array(HALF_TOPICS)), prepared))
    halves = pa.table({
        "broker": halves["broker"],
        "transaction": pc.coalesce(halves["__transactionId__"], halves["uniq_key"], halves["offset_msg_id"]),
        "producer_group": halves["PGROUP"],
        "topic": pc.coalesce(halves["REAL_TOPIC"], halves["topic"]),
        "half_topic": halves["topic"],
        "half": pc.if_else(
            pc.match_substring(halves["topic"], "ROCKSDB"), halves["commit_log_offset"], halves["queue_offset"]
        ),
        "offset": halves["commit_log_offset"],
        "uniq_key": halves["uniq_key"],
        "stored": halves["store_timestamp"],
    })  # fmt: skip
    halves = halves.join(_decisions(rows), ["broker", "offset"], join_type="left outer")
    halves = halves.join(_operations(rows), ["broker", "half_topic", "half"], join_type="left outer")
    halves = halves.join(_given_up(rows), ["broker", "uniq_key"], join_type="left outer")
    found = summed(
        halves, ["broker", "transaction"], producer_group=("producer_group", "min"), topic=("topic", "min"),
        committed=("committed", "max"), rolled_back=("committed", "min"), operations=("undone", "count"),
        given_up=("given_up", "count"), copies=(None, "count_all"), begun=("stored", "min"),
        decided=("decided", "min"), given=("given_up", "min"), undone=("undone", "min"),
    )  # fmt: skip
    with_bodies = rows.filter(pc.and_(_of_operations(rows), pc.is_valid(rows[BODY])))["broker"].unique()
    ended = pc.coalesce(found["decided"], found["given"], found["undone"])
    outcomes = pa.table({
        "broker": found["broker"],
        "producer_group": found["producer_group"],
        "topic": found["topic"],
        "outcome": _outcomes(found, with_bodies),
        "checks": pc.subtract(found["copies"], pa.scalar(1, pa.int64())),
        "seconds": pc.divide(pc.cast(_between(ended, found["begun"]), pa.float64()), 1000.0),
    })  # fmt: skip
    keys = ("producer_group", "topic", "outcome")
    found = _over_brokers(
        outcomes, keys, transactions=(None, "count_all"), checks=("checks", "sum"),
        median_seconds=("seconds", "median"), max_seconds=("seconds", "max"),
    )  # fmt: skip
    return in_order(found, *keys)


def _outcomes(found: pa.Table, with_bodies: pa.Array) -> pa.Array:
    """Returns each transaction's outcome; ``committed`` is 1 where any decision was one, ``rolled_back`` 0 where any
    was none.
    """
    cases = [
        pc.fill_null(pc.equal(found["committed"], 1), False),
        pc.fill_null(pc.equal(found["rolled_back"], 0), False),
        pc.greater(found["given_up"], 0),
        pc.greater(found["operations"], 0),
        pc.is_in(found["broker"], value_set=with_bodies),
    ]
    names = ("committed", "rolled back", "given up", "rolled back", "open")
    conditions = pa.StructArray.from_arrays([case.combine_chunks() for case in cases], [str(at) for at in range(5)])
    return pc.case_when(conditions, *names, "not committed")


def _decisions(rows: pa.Table) -> pa.Table:
    ends = rows.filter(pc.is_in(rows["transaction_type"], value_set=pa.array(["commit", "rollback"])))
    ends = ends.append_column("commit", pc.equal(ends["transaction_type"], "commit").cast(pa.int8()))
    found = summed(
        ends, ["broker", "prepared_transaction_offset"], decided=("store_timestamp", "min"), committed=("commit", "max")
    )
    return found.rename_columns(["broker", "offset", "decided", "committed"])


def _operations(rows: pa.Table) -> pa.Table:
    """Returns when the broker noted that a half message is done, by the half message's place in its queue."""
    done = rows.filter(pc.and_(_of_operations(rows), pc.equal(rows["tags"], "d")))
    named: dict[str, list[Any]] = {"broker": [], "half_topic": [], "half": [], "undone": []}
    columns = (done[name].to_pylist() for name in ("broker", "topic", BODY, "TRANS_OFFSET"))
    stored = done["store_timestamp"].cast(pa.int64()).to_pylist()
    for broker, topic, body, offset, at in zip(*columns, stored, strict=True):
        given = whole_number(offset)
        for word in () if body is None else body.split(b","):
            half = whole_number(word.decode("latin-1")) if given is None else given
            for name, value in zip(named, (broker, topic.replace("_OP_", "_"), half, at), strict=True):
                named[name].append(value)
    kinds = (pa.int64(), pa.string(), pa.int64(), pa.int64())
    table = pa.table({name: pa.array(values, kind) for (name, values), kind in zip(named.items(), kinds, strict=True)})
    table = table.set_column(3, "undone", table["undone"].cast(TIMESTAMP))
    return summed(table, ["broker", "half_topic", "half"], undone=("undone", "min"))


def _of_operations(rows: pa.Table) -> pa.ChunkedArray:
    return pc.is_in(rows["topic"], value_set=pa.array(OP_TOPICS))


def _given_up(rows: pa.Table) -> pa.Table:
    return summed(
        rows.filter(pc.equal(rows["topic"], GIVEN_UP_TOPIC)),
        ["broker", "uniq_key"],
        given_up=("store_timestamp", "min"),
    )
