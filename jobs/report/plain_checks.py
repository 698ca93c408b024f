"""The checks of a plain table without Spark: what ``facts.CHECKS`` asks of the views, counted by Arrow and numpy.

The views are the definition; each function names those that it stands for.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.report import plain_outcomes
from jobs.report.facts import CHECKS, Row
from jobs.report.grouping import group_numbers, in_order, milliseconds, run_starts, summed
from jobs.report.plain_facts import host_of
from jobs.report.plain_rows import NO_NUMBER, NO_TIME, AskSpark, Part, TableRows, read_rows, side_by_side
from jobs.table.messages_table import MessagesTable
from storeformat.arrays import Int64s, stable_order
from udfs.table.schemas import TIMESTAMP

MOST_REPEATED = 8_000_000
"""Of messages whose key may be there twice, some 1 GB; of more Spark tells."""
_BIGINT = np.iinfo(np.int64)
_WIDE = pa.decimal128(38)


def check_plain(table: MessagesTable) -> dict[str, list[Row]]:
    """Returns what each check finds; raises AskSpark for a table that this cannot check."""
    rows = read_rows(table)
    if not rows.parts:
        return {name: [] for name in CHECKS}
    order, broker_of_row = _log_order(rows)
    ends = np.maximum.reduceat(rows.all_of("stored")[order], run_starts(broker_of_row))
    found = {
        "retries": plain_outcomes.retries(rows.tracked),
        "duplicates": duplicates(rows),
        "transactions": plain_outcomes.transactions(rows.tracked),
        "delays": plain_outcomes.delays(rows.tracked, ends),
        "gaps": queue_gaps(rows, order),
        "clock_steps": clock_steps(rows, order, broker_of_row),
        "clocks_ahead": clocks_ahead(rows),
    }
    return {name: answer.to_pylist() for name, answer in found.items()}


def clocks_ahead(rows: TableRows) -> pa.Table:
    """Returns the hosts that made messages after they were stored (``clock_skew_by_host``)."""
    hosts = pa.concat_tables([part.hosts for part in rows.parts])
    hosts = hosts.set_column(0, "host", host_of(hosts["host"]))
    found = summed(
        hosts,
        ["host"],
        messages=("messages", "sum"),
        from_the_future=("from_the_future", "sum"),
        min_ms=("min_ms", "min"),
    )
    found = found.filter(pc.greater(found["from_the_future"], 0))
    return in_order(found, "min_ms", "host")


def _log_order(rows: TableRows) -> tuple[Int64s, Int64s]:
    """Returns the order of all rows by broker, and of each broker's as in its log; and the brokers in that order."""
    order = np.argsort(rows.all_of("offsets"))
    brokers = rows.broker_of[rows.all_of("queues")[order]]
    by_broker = stable_order(brokers, len(rows.broker_of))
    return order[by_broker], brokers[by_broker]


def clock_steps(rows: TableRows, order: Int64s, brokers: Int64s) -> pa.Table:
    """Returns how often each broker's clock went back (``clock_steps``)."""
    stored = rows.all_of("stored")[order]
    known = stored != NO_TIME
    stored, brokers = stored[known], brokers[known]
    after = np.flatnonzero((stored[1:] < stored[:-1]) & (brokers[1:] == brokers[:-1])) + 1
    places = pa.table({
        "broker": brokers[after],
        "milliseconds": stored[after - 1] // 1000 - stored[after] // 1000,
        "stored": pa.array(stored[after]).cast(TIMESTAMP),
    })  # fmt: skip
    found = summed(
        places, ["broker"], steps=(None, "count_all"), max_milliseconds=("milliseconds", "max"),
        first=("stored", "min"), last=("stored", "max"),
    )  # fmt: skip
    _, queue_of = np.unique(rows.broker_of, return_index=True)
    names = rows.queues.select(["cluster", "broker"]).take(queue_of[np.asarray(found["broker"])])
    return in_order(_beside(names, found.drop_columns(["broker"])), "cluster", "broker")


def _beside(names: pa.Table, found: pa.Table) -> pa.Table:
    return pa.table([*names.columns, *found.columns], [*names.column_names, *found.column_names])


def queue_gaps(rows: TableRows, order: Int64s) -> pa.Table:
    """Returns where the numbers of queues do not go on by one (``queue_gaps``); ``order`` is the log's."""
    dispatched, queues = rows.all_of("dispatched"), rows.all_of("queues")
    if not dispatched.all():
        order = order[dispatched[order]]
    order = order[stable_order(queues[order].astype(np.int64), len(rows.queues))]
    queues = queues[order]
    numbers, expected = rows.all_of("numbers")[order][1:], rows.all_of("following")[order][:-1]
    odd = np.flatnonzero((queues[1:] == queues[:-1]) & (numbers != expected) & (expected != NO_NUMBER))
    found, awaited = numbers[odd], expected[odd]
    with np.errstate(over="ignore"):
        missing = found - awaited
    gap = found > awaited
    missing = np.where(gap, np.where(missing < 0, _BIGINT.max, missing), 0)
    times = rows.all_of("stored")[order[odd + 1]]
    places = pa.table({
        "queue": queues[odd + 1],
        "kind": pa.array(np.where(gap, "gap", np.where(found == 0, "restart", "repeat")), pa.string()),
        "missing": pa.array(missing).cast(_WIDE),
        "stored": pa.array(times, mask=times == NO_TIME).cast(TIMESTAMP),
    })  # fmt: skip
    sums = summed(
        places, ["queue", "kind"], places=(None, "count_all"), missing=("missing", "sum"), first=("stored", "min"),
        last=("stored", "max"),
    )  # fmt: skip
    most = pa.array([min(int(number), _BIGINT.max) for number in sums["missing"].to_pylist()], pa.int64())
    sums = sums.set_column(sums.column_names.index("missing"), "missing", most)
    answer = _beside(rows.queues.take(sums["queue"]), sums.drop_columns(["queue"]))
    return in_order(answer, "-missing", *rows.queues.column_names, "kind")


def duplicates(rows: TableRows) -> pa.Table:
    """Returns topics with messages that are there more than once (``duplicates_by_topic``)."""
    topic_of = group_numbers(rows.queues, ["cluster", "topic"])
    topics, queue_of = np.unique(topic_of, return_index=True)
    keys = _repeated(rows, topic_of)
    copies = summed(
        keys, ["topic", "uniq_key"], copies=(None, "count_all"), least_queue=("queue", "min"),
        largest_queue=("queue", "max"), least_born=("born", "min"), largest_born=("born", "max"),
        with_born=("born", "count"), least_number=("number", "min"), largest_number=("number", "max"),
        first=("stored", "min"), last=("stored", "max"),
    )  # fmt: skip
    copies = copies.filter(pc.greater(copies["copies"], 1))
    copies = copies.filter(pc.invert(_one_batch(copies)))
    took = pc.divide(
        pc.cast(pc.subtract(milliseconds(copies["last"]), milliseconds(copies["first"])), pa.float64()), 1000.0
    )
    surplus = pc.subtract(copies["copies"], pa.scalar(1, pa.int64()))
    copies = pa.table({"topic": copies["topic"], "surplus": surplus, "seconds": took})
    found = summed(
        copies,
        ["topic"],
        duplicated_keys=(None, "count_all"),
        surplus=("surplus", "sum"),
        median_seconds_between=("seconds", "median"),
    )
    numbers = np.asarray(found["topic"])
    counted = [np.bincount(topic_of[part.queues], minlength=len(topics)) for part in rows.parts]
    messages = np.sum(counted, axis=0)[numbers]
    answer = pa.table({
        "topic": rows.queues["topic"].take(queue_of[numbers]),
        "messages": messages,
        "duplicated_keys": found["duplicated_keys"],
        "surplus": found["surplus"],
        "surplus_share": np.asarray(found["surplus"]) / messages,
        "median_seconds_between": found["median_seconds_between"],
    })  # fmt: skip
    return in_order(answer, "-surplus", "topic")


def _repeated(rows: TableRows, topic_of: Int64s) -> pa.Table:
    """Returns the rows whose hash another row has, too: nearly all keys occur once, and only the others are looked at
    closely.
    """
    hashes = np.concatenate([part.hashes for part in rows.parts])
    hashes.sort()
    twice = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    del hashes

    def same(part: Part) -> Int64s:
        places = np.minimum(np.searchsorted(twice, part.hashes), len(twice) - 1)
        found: Int64s = part.hashed[twice[places] == part.hashes].astype(np.int64)
        return found

    which = side_by_side(same, rows.parts) if len(twice) else []
    if sum(map(len, which)) > MOST_REPEATED:
        raise AskSpark(f"more than {MOST_REPEATED:,} messages may be duplicates")

    def look(place: int) -> pa.Table:
        part, chosen = rows.parts[place], which[place]
        read = part.group.read(("uniq_key", "born_timestamp", "queue_offset")).take(pa.array(chosen))
        stored = part.stored[chosen]
        columns = [
            topic_of[part.queues[chosen]], read["uniq_key"], part.queues[chosen],
            read["born_timestamp"].cast(TIMESTAMP), read["queue_offset"],
            pa.array(stored, mask=stored == NO_TIME).cast(TIMESTAMP),
        ]  # fmt: skip
        return pa.table(columns, schema=_KEYS)

    read = side_by_side(look, [place for place, chosen in enumerate(which) if len(chosen)])
    return pa.concat_tables([_KEYS.empty_table(), *read])


_KEYS = pa.schema([
    ("topic", pa.int64()), ("uniq_key", pa.string()), ("queue", pa.int32()), ("born", TIMESTAMP),
    ("number", pa.int64()), ("stored", TIMESTAMP),
])  # fmt: skip


def _one_batch(copies: pa.Table) -> pa.Array:
    """Returns whether copies are one batch, whose messages brokers up to 5.3 store under one key."""
    one_queue = pc.equal(copies["least_queue"], copies["largest_queue"])
    one_time = pc.and_(
        pc.fill_null(pc.equal(copies["least_born"], copies["largest_born"]), True),
        pc.or_(pc.equal(copies["with_born"], 0), pc.equal(copies["with_born"], copies["copies"])),
    )
    span = pc.subtract(copies["largest_number"], copies["least_number"])
    consecutive = pc.equal(span, pc.subtract(copies["copies"], pa.scalar(1, pa.int64())))
    return pc.and_(pc.and_(one_queue, one_time), consecutive)
