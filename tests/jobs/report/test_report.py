"""``report``: what it says about rows is right, in all its outputs."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import golden, messages_model, random_messages
from support.broker_model import read_segments
from support.broker_settings import BrokerSettings
from support.loading import load_here
from support.report_facts import BEGIN, TAGS, facts, group
from support.store_builder import COMMIT, LogBuilder, Message

from jobs.contract.options import ReportOptions, TopicFilter
from jobs.contract.report import Report, Reporter
from jobs.report import page, report
from jobs.report.views import BY_REAL_TOPIC, CHECKS, KEYS, Facts, measure
from storeformat.errors import MissingInput, WriteFailed
from udfs.table import schemas


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\uff1d1", "'\uff1d1"),
        ("\t=1", "\\x09=1"),
        ("a\x1b[2J\u009bb\r\n=1", "a\\x1b[2J\\x9bb\\x0d\\x0a=1"),
        (" =1", "' =1"),
        ('"=1', "'\"=1"),
        ("x;=1+1", "x;'=1+1"),
        ('x; "-1;y', "x;' \"-1;y"),
        ("TagA", "TagA"),
        ("a=1;b=2-c", "a=1;b=2-c"),
        ("订单 1-2", "订单 1-2"),
    ],
)
def test_no_cell_is_a_formula(text: str, written: str) -> None:
    (row,) = csv.DictReader(io.StringIO(report.to_csv(facts(groups=[group(text, 1, 100)])), newline=""))
    assert (row["tags"], row["topic"], row["messages"]) == (written, "orders", "1")


def test_times_of_a_csv_have_fractions_alike() -> None:
    groups = [{"hour": BEGIN, "first_stored": BEGIN.replace(microsecond=part)} for part in (0, 5000)]
    rows = list(csv.DictReader(io.StringIO(report.to_csv(facts(by="hour", groups=groups)), newline="")))
    assert [len(row["first_stored"]) for row in rows] == [len(str(groups[1]["first_stored"]))] * 2
    assert rows[0]["hour"] == str(BEGIN)


def test_csv_holds_every_group_whatever_the_tag() -> None:
    rows = list(csv.DictReader(io.StringIO(report.to_csv(facts()), newline="")))
    assert [row["tags"] or None for row in rows] == TAGS
    assert [int(row["messages"]) for row in rows] == [6, 5, 4, 3, 2, 1]


# --------------------------------------------------------------------------------------------------------- with Spark
@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """A Delta table and its rows: two golden stores as two brokers."""
    rows = []
    for name in ("base-clean-4.9.8", "retention-5.5.0"):
        (store,) = golden.stores(lambda one, name=name: one.name == name)  # type: ignore[misc]
        settings = BrokerSettings.of(store.version, store.settings)
        read = messages_model.rows(read_segments(golden.unpack(store)), settings)
        rows += [{"cluster": "c", "broker": name, **row} for row in read]
    path = str(tmp_path_factory.mktemp("report") / "messages")
    deltalake.write_deltalake(path, pa.Table.from_pylist(rows, schema=schemas.MESSAGES), partition_by=["store_date"])
    return path, rows


def key_of(row: dict[str, Any], by: str) -> tuple[Any, ...]:
    values = {
        **row,
        "host": row["born_host"].rpartition(":")[0],
        "hour": row["store_timestamp"].replace(minute=0, second=0, microsecond=0),
    }
    return tuple(values[name] for name in KEYS[by])


@pytest.mark.spark
@pytest.mark.golden
@pytest.mark.parametrize("by", ["queue", "hour"])
def test_groups_are_those_of_a_slow_count(by: str, table: tuple[str, list[dict[str, Any]]]) -> None:
    path, rows = table
    found = report.run(ReportOptions(table=path, by=by), Reporter(quiet=True))  # type: ignore[arg-type]
    messages, sizes = Counter(key_of(row, by) for row in rows), Counter[Any]()
    for row in rows:
        sizes[key_of(row, by)] += row["size"]
    assert {tuple(one[key] for key in KEYS[by]): (one["messages"], one["bytes"]) for one in found["groups"]} == {
        key: (messages[key], sizes[key]) for key in messages
    }
    assert [one["bytes"] for one in found["groups"]] == sorted(sizes.values(), reverse=True)
    assert sum(one["share"] for one in found["groups"]) == pytest.approx(1)
    assert (found["messages"], found["bytes"]) == (len(rows), sum(sizes.values()))
    seconds = (found["last_stored"] - found["first_stored"]).total_seconds()
    length = {"hour": 3600, "date": 86400}.get(by, seconds)
    first = found["groups"][0]
    assert first["bytes_per_second"] == pytest.approx(first["bytes"] / length)
    assert found.exit_code == 0


def three_messages(path: Path) -> list[dict[str, Any]]:
    """A plain table of three messages of two topics; returns its rows."""
    rows = [
        {**random_messages.messages(1, 1)[0], "cluster": "c", "broker": "b", "topic": topic, "queue_offset": number,
         "commit_log_offset": 1000 * number, "size": 100, "body_size": 40, "properties": [], "queue_id": 0,
         "transaction_type": "none", "uniq_key": f"k{number}", "dispatched": True, "reconsume_times": 0,
         "store_timestamp": BEGIN, "born_timestamp": BEGIN, "store_date": BEGIN.date()}
        for number, topic in enumerate(("t", "u", "t"))
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, schema=schemas.MESSAGES)
    deltalake.write_deltalake(str(path), table, partition_by=["store_date"])
    return rows


@pytest.mark.spark
def test_what_the_outputs_say(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_messages(tmp_path / "t")
    drawn: list[Any] = []
    render = page.render
    monkeypatch.setattr(page, "render", lambda *given: drawn.append(given) or f"{render(*given)}<é>")
    said = io.StringIO()
    files = {"html": str(tmp_path / "r.html"), "csv": str(tmp_path / "r.csv")}
    (tmp_path / "r.html").write_text("that of the night before")
    found = report.run(ReportOptions(table=str(tmp_path / "t"), **files), Reporter(stream=said))
    group = {"body_bytes": 40, "first_stored": BEGIN, "last_stored": BEGIN}
    groups = [
        {"topic": "t", "messages": 2, "bytes": 200, **group, "body_bytes": 80, "share": 200 / 300,
         "messages_per_second": 2.0, "bytes_per_second": 200.0},
        {"topic": "u", "messages": 1, "bytes": 100, **group, "share": 100 / 300,
         "messages_per_second": 1.0, "bytes_per_second": 100.0},
    ]  # fmt: skip
    brokers = [
        {"cluster": "c", "broker": "b", "messages": 3, "bytes": 300, "first_stored": BEGIN, "last_stored": BEGIN}
    ]
    gaps = [{"cluster": "c", "broker": "b", "topic": "t", "queue_id": 0, "kind": "gap", "places": 1, "missing": 1,
             "first": BEGIN, "last": BEGIN}]  # fmt: skip
    checks = {**{name: [] for name in CHECKS}, "gaps": gaps}
    assert {name: fact for name, fact in found.items() if name != "seconds"} == {
        "job": "report", "status": "ok", "table": str(tmp_path / "t"), "by": "topic", "messages": 3, "bytes": 300,
        "first_stored": BEGIN, "last_stored": BEGIN, "brokers": brokers, "groups": groups, "groups_in_all": 2,
        "checks": checks, "notes": [],
    }  # fmt: skip
    assert said.getvalue() == "drawing the page\n"
    ((facts_drawn, pictures, *about),) = drawn
    assert (facts_drawn.groups, facts_drawn.checks, about) == (groups, checks, [str(tmp_path / "t"), 0])
    assert sum(row["messages"] for row in pictures.sizes) == 3
    shown = (tmp_path / "r.html").read_bytes().decode()
    assert (shown[:9], shown[-11:]) == ("<!doctype", "</html>\n<é>")
    assert (tmp_path / "r.csv").read_bytes().decode() == report.to_csv(facts_drawn)
    assert "--csv and --json" not in found.to_text()
    assert "no step back, no producer ahead" in found.to_text()


@pytest.mark.spark
def test_a_terminal_shows_the_largest_groups(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_messages(tmp_path / "t")
    monkeypatch.setattr(report, "SHOWN", 1)
    monkeypatch.setattr(report, "MOST_IN_JSON", 1)
    found = report.run(ReportOptions(table=str(tmp_path / "t")), Reporter(quiet=True))
    assert found.to_text().splitlines()[-1] == "... and 1 more (--csv and --json have the largest of them)"
    assert ([group["topic"] for group in found["groups"]], found["groups_in_all"]) == (["t"], 2)
    assert "checks" not in found


@pytest.mark.spark
@pytest.mark.parametrize("days", [(None, date(2024, 5, 1)), (None, None), ()])
def test_messages_without_a_day_and_a_table_without_messages(
    days: tuple[date | None, ...], spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{**random_messages.messages(1, 1)[0], "size": 100, "store_date": day} for day in days]
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.Table.from_pylist(rows, schema=schemas.MESSAGES), partition_by=["store_date"])
    found = report.run(ReportOptions(table=path, by="date"), Reporter(quiet=True))
    in_json = [group["store_date"] for group in json.loads(found.to_json())["groups"]]
    assert in_json == [day and str(day) for day in (group["store_date"] for group in found["groups"])]
    groups = [(group["store_date"], group["bytes"]) for group in found["groups"]]
    assert groups == ([(day, 100) for day in days] if len(set(days)) == len(days) else [(None, 200)])


@pytest.mark.spark
@pytest.mark.golden
def test_a_report_of_a_part(table: tuple[str, list[dict[str, Any]]]) -> None:
    path, rows = table
    broker = rows[0]["broker"]
    times = sorted(row["store_timestamp"] for row in rows if row["broker"] == broker)
    begin, end = times[len(times) // 4], times[-len(times) // 4]
    topic, queue = rows[0]["topic"], rows[0]["queue_id"]
    other = next(row["topic"] for row in rows if row["topic"] != topic and row["broker"] == broker)
    options = ReportOptions(
        table=path, by="queue", broker=broker, topics=(TopicFilter(topic, queue), TopicFilter(other)),
        begin=int(begin.timestamp() * 1000), end=int(end.timestamp() * 1000), checks=True,
    )  # fmt: skip
    found = report.run(options, Reporter(quiet=True))
    wanted = Counter(
        (row["topic"], row["queue_id"]) for row in rows
        if row["broker"] == broker and begin <= row["store_timestamp"] <= end
        and (row["topic"] == other or (row["topic"], row["queue_id"]) == (topic, queue))
    )  # fmt: skip
    assert {(group["topic"], group["queue_id"]): group["messages"] for group in found["groups"]} == wanted
    assert len(wanted) > 1
    everything = ReportOptions(table=path, begin=-(10**18), end=10**18)
    assert report.run(everything, Reporter(quiet=True))["messages"] == len(rows)


def waiting_messages() -> LogBuilder:
    """Of ``orders`` and ``pay``: half messages and what became of them, delays, retries, dead letters."""
    log = LogBuilder(1 << 18)
    for number in range(90):
        topic, key = ("orders", "pay")[number % 3 == 0], f"K{number}"
        real, group = {"REAL_TOPIC": topic, "REAL_QID": "0", "PGROUP": "p"}, f"g{number % 4}"
        half = log.message(topic="RMQ_SYS_TRANS_HALF_TOPIC", uniq_key=key, properties=real)
        if number % 5 < 2:
            log.message(topic=topic, uniq_key=key, sys_flag=COMMIT, prepared_transaction_offset=half.offset)
        if number % 5 < 3:
            done = str(half.message.queue_offset).encode()
            log.message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", tags="d", body=done)
        waits = Message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, uniq_key=f"D{number}", properties=real)
        log.message(waits, properties={**real, "DELAY": "3"})
        if number % 4:
            log.message(topic=topic, uniq_key=f"D{number}", properties={**real, "DELAY": "3"})
        log.message(topic=f"%RETRY%{group}", properties={"RETRY_TOPIC": topic}, reconsume_times=1)
        log.message(topic=f"%RETRY%{group}_{topic}", reconsume_times=2)
        if number % 7 == 0:
            log.message(topic=f"%DLQ%{group}", properties={"DLQ_ORIGIN_TOPIC": topic}, reconsume_times=16)
    log.message(topic="pay", store_timestamp=log.clock + 3_600_000)  # until then all are overdue
    return log


def asked(table: Path, *topics: str) -> Report:
    options = ReportOptions(table=str(table), topics=tuple(map(TopicFilter.parse, topics)), checks=True)
    return report.run(options, Reporter(quiet=True))


@pytest.mark.spark
def test_messages_that_stand_in_other_topics_are_their_topics(spark: SparkSession, tmp_path: Path) -> None:
    log, table = waiting_messages(), tmp_path / "t"
    load_here(log.write(tmp_path / "s"), table, with_bodies=True)
    numbers = [number for number in range(90) if number % 3]
    found = asked(table, "orders")
    outcomes, kinds = Counter[str](), Counter[str]()
    for row in found["checks"]["transactions"]:
        outcomes[row["outcome"]] += row["transactions"]
    for row in found["checks"]["retries"]:
        kinds[row["kind"]] += row["messages"]
    of = Counter(number % 5 for number in numbers)
    assert outcomes == {"committed": of[0] + of[1], "rolled back": of[2], "open": of[3] + of[4]}
    assert kinds == {"retry": 2 * len(numbers), "dlq": sum(number % 7 == 0 for number in numbers)}
    (level,) = found["checks"]["delays"]
    arrived = sum(number % 4 > 0 for number in numbers)
    assert (level["scheduled"], level["delivered"], level["overdue"]) == (60, arrived, 60 - arrived)
    mine = [one for one in log.records if one.message.topic == "orders"]
    assert (found["messages"], found["bytes"]) == (len(mine), sum(one.size for one in mine))
    assert found["checks"]["gaps"] == found["checks"]["clock_steps"] == []


@pytest.mark.spark
@pytest.mark.slow
def test_several_topics_and_retry_topics_are_parts_of_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    load_here(waiting_messages().write(tmp_path / "s"), table, with_bodies=True)

    def those_of_real_topics(session: SparkSession, by: str, *, checks: bool, without: tuple[str, ...]) -> Facts:
        return measure(session, by, checks=checks, without=(*without, "duplicates", "gaps", "clock_steps"))

    monkeypatch.setattr(report, "measure", those_of_real_topics)
    both, everything = asked(table, "orders", "pay")["checks"], asked(table)["checks"]
    assert [both[name] for name in BY_REAL_TOPIC] == [everything[name] for name in BY_REAL_TOPIC]
    of_group = asked(table, "%RETRY%g1")["checks"]
    retries = [row for row in everything["retries"] if (row["consumer_group"], row["kind"]) == ("g1", "retry")]
    assert (of_group["retries"], of_group["transactions"]) == (retries, [])
    part = asked(table, "orders:0")
    assert part["checks"].keys() == {"clocks_ahead"}
    assert part.to_text().count("not judged with this --topic") == len(BY_REAL_TOPIC)


@pytest.mark.parametrize(
    ("topics", "judged"),
    [((), True), (("orders",), True), (("orders", "pay:0"), False), (("orders", "RMQ_SYS_TRANS_HALF_TOPIC"), False),
     (("RMQ_SYS_TRANS_OP_HALF_TOPIC",), False)],
)  # fmt: skip
def test_what_waits_elsewhere_belongs_to_a_topic_and_to_no_queue(topics: tuple[str, ...], judged: bool) -> None:
    options = ReportOptions(table="/t", topics=tuple(map(TopicFilter.parse, topics)))
    assert report.not_judged(options) == (() if judged else BY_REAL_TOPIC)


def test_the_page_says_of_which_part_it_is() -> None:
    options = ReportOptions(table="/t", broker="b", topics=(TopicFilter("T", 1), TopicFilter("U")), begin=0, end=10**18)
    said = "/t, broker b, topic T:1, topic U, from 1970-01-01 00:00:00 UTC, to 9999-12-31 00:00:00 UTC"
    assert report.named(options) == said
    assert report.named(ReportOptions(table="/t")) == "/t"


def test_files_are_refused_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "require_plots", lambda: (_ for _ in ()).throw(MissingInput("no plots")))
    with pytest.raises(MissingInput, match="no plots"):
        report.run(ReportOptions(table="t", html=str(tmp_path / "r.html")), Reporter(quiet=True))


def test_the_header_of_a_csv_without_groups() -> None:
    assert report.to_csv(facts(by="queue", groups=[])) == "cluster,broker,topic,queue_id,messages,bytes\r\n"
    one = {"topic": "a,b", "messages": 1, "bytes": 2.5, "first": None}
    assert report.to_csv(facts(by="topic", groups=[one])) == 'topic,messages,bytes,first\r\n"a,b",1,2.5,\r\n'


@pytest.mark.parametrize("what", ["html", "csv"])
def test_a_directory_is_no_file(what: str, tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match="directory"):
        report.run(ReportOptions(table="t", **{what: str(tmp_path)}), Reporter(quiet=True))


@pytest.mark.spark
def test_no_such_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        report.run(ReportOptions(table=str(tmp_path / "nothing")), Reporter(quiet=True))
