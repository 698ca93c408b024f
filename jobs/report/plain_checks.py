"""The checks of a plain table without Spark: what ``facts.CHECKS`` asks of the views, counted by Arrow and numpy.

The views are the definition; each function names those that it stands for.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.report import plain_outcomes
from jobs.report.facts import CHECKS, Row
from jobs.report.grouping import in_order, milliseconds, summed
from jobs.report.plain_facts import host_of
from jobs.report.plain_rows import NO_NUMBER, NO_TIME, AskSpark, Part, RowsOfBroker, TableRows, read_rows, side_by_side
from jobs.table.plain_table import PlainTable
from storeformat.arrays import Int64s, stable_order
from udfs.table.schemas import TIMESTAMP

MOST_REPEATED = 8_000_000
"""Of messages whose key may be there twice, some 1 GB; of more Spark tells."""
_BIGINT = np.iinfo(np.int64)
_WIDE = pa.decimal128(38)


def check_plain(table: PlainTable) -> dict[str, list[Row]]:
    """Returns what each check finds; raises AskSpark for a table that this cannot check."""
    rows = read_rows(table)
    if not rows.parts:
        return {name: [] for name in CHECKS}
    steps, gaps, ends = _in_the_log(rows)
    found = {
        "retries": plain_outcomes.retries(rows.tracked),
        "duplicates": duplicates(rows),
        "transactions": plain_outcomes.transactions(rows.tracked),
        "delays": plain_outcomes.delays(rows.tracked, ends),
        "gaps": gaps,
        "clock_steps": steps,
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


def _in_the_log(rows: TableRows) -> tuple[pa.Table, pa.Table, Int64s]:
    """Returns the answers that follow each broker's log in its order, ``clock_steps`` and ``queue_gaps``, and when each
    broker's last message was stored.
    """
    steps, gaps, ends = [], [], np.full(len(rows.brokers), NO_TIME)
    for number, (cluster, broker) in enumerate(rows.brokers):
        mine = rows.of_broker(number)
        order = np.argsort(mine.all_of("offsets"))
        stored = mine.all_of("stored")[order]
        ends[number] = stored.max()
        steps += _steps(cluster, broker, stored)
        gaps.append(_gaps(mine, order, len(rows.queues)))
    return _steps_in_order(steps), _gaps_in_order(rows, gaps), ends


def _steps(cluster: str | None, broker: str | None, stored: Int64s) -> list[Row]:
    """Returns how often a broker's clock went back, nothing if never; ``stored`` is in the order of the log."""
    stored = stored[stored != NO_TIME]
    after = np.flatnonzero(stored[1:] < stored[:-1]) + 1
    if not len(after):
        return []
    back = stored[after - 1] // 1000 - stored[after] // 1000
    first, last = pa.array([stored[after].min(), stored[after].max()], pa.int64()).cast(TIMESTAMP)
    return [{
        "cluster": cluster, "broker": broker, "steps": len(after), "max_milliseconds": int(back.max()),
        "first": first, "last": last,
    }]  # fmt: skip


def _steps_in_order(steps: list[Row]) -> pa.Table:
    schema = pa.schema([
        ("cluster", pa.string()), ("broker", pa.string()), ("steps", pa.int64()), ("max_milliseconds", pa.int64()),
        ("first", TIMESTAMP), ("last", TIMESTAMP),
    ])  # fmt: skip
    return in_order(pa.Table.from_pylist(steps, schema), "cluster", "broker")


def _gaps(rows: RowsOfBroker, order: Int64s, count: int) -> pa.Table:
    """Returns the places where the numbers of one of ``count`` queues do not go on by one; ``order`` is the log's."""
    dispatched, queues = rows.all_of("dispatched"), rows.all_of("queues")
    if not dispatched.all():
        order = order[dispatched[order]]
    order = order[stable_order(queues[order].astype(np.int64), count)]
    queues = queues[order]
    numbers, expected = rows.all_of("numbers")[order][1:], rows.all_of("following")[order][:-1]
    odd = np.flatnonzero((queues[1:] == queues[:-1]) & (numbers != expected) & (expected != NO_NUMBER))
    found, awaited = numbers[odd], expected[odd]
    with np.errstate(over="ignore"):
        missing = found - awaited
    gap = found > awaited
    missing = np.where(gap, np.where(missing < 0, _BIGINT.max, missing), 0)
    times = rows.all_of("stored")[order[odd + 1]]
    return pa.table({
        "queue": queues[odd + 1],
        "kind": np.where(gap, "gap", np.where(found == 0, "restart", "repeat")).astype(object),
        "missing": pa.array(missing).cast(_WIDE),
        "stored": pa.array(times, mask=times == NO_TIME).cast(TIMESTAMP),
    })  # fmt: skip


def _gaps_in_order(rows: TableRows, gaps: list[pa.Table]) -> pa.Table:
    places = pa.concat_tables([table.cast(_GAPS) for table in gaps])
    found = summed(
        places,
        ["queue", "kind"],
        places=(None, "count_all"),
        missing=("missing", "sum"),
        first=("stored", "min"),
        last=("stored", "max"),
    )
    most = pa.array([min(int(number), _BIGINT.max) for number in found["missing"].to_pylist()], pa.int64())
    queues = [rows.queues[number] for number in found["queue"].to_pylist()]
    names = ("cluster", "broker", "topic", "queue_id")
    types = (pa.string(), pa.string(), pa.string(), pa.int32())
    columns = {
        name: pa.array([queue[at] for queue in queues], kind)
        for at, (name, kind) in enumerate(zip(names, types, strict=True))
    }
    columns |= {
        "kind": found["kind"],
        "places": found["places"],
        "missing": most,
        "first": found["first"],
        "last": found["last"],
    }
    return in_order(pa.table(columns), "-missing", *names, "kind")


_GAPS = pa.schema([("queue", pa.int32()), ("kind", pa.string()), ("missing", _WIDE), ("stored", TIMESTAMP)])


def duplicates(rows: TableRows) -> pa.Table:
    """Returns topics with messages that are there more than once (``duplicates_by_topic``)."""
    topic_of, topics = _topics(rows)
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
    numbers = found["topic"].to_pylist()
    counted = [np.bincount(topic_of[part.queues], minlength=len(topics)) for part in rows.parts]
    messages = np.sum(counted, axis=0)[numbers]
    answer = pa.table({
        "topic": pa.array([topics[number][1] for number in numbers], pa.string()),
        "messages": messages,
        "duplicated_keys": found["duplicated_keys"],
        "surplus": found["surplus"],
        "surplus_share": np.asarray(found["surplus"]) / messages,
        "median_seconds_between": found["median_seconds_between"],
    })  # fmt: skip
    return in_order(answer, "-surplus", "topic")


def _topics(rows: TableRows) -> tuple[Int64s, list[tuple[str | None, str]]]:
    """Returns for each queue the number of its cluster's topic, and what these are."""
    topics = list(dict.fromkeys((cluster, topic) for cluster, _, topic, _ in rows.queues))
    numbers = {topic: number for number, topic in enumerate(topics)}
    return np.array([numbers[queue[0], queue[2]] for queue in rows.queues], np.int64), topics


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
