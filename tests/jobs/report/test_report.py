"""``report``: what it says about rows is right, and its page is one sound file."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import golden, messages_model
from support.broker_model import read_segments
from support.broker_settings import BrokerSettings

from jobs.config import ReportOptions
from jobs.report import page, plots, report
from jobs.report.facts import CHECKS, KEYS, Facts, to_text
from jobs.reporting import Reporter
from jobs.table import messages_table
from storeformat.errors import MissingInput, WriteFailed
from udfs.table import schemas

BEGIN = datetime(2024, 5, 30, 7, 0, tzinfo=timezone.utc)
TAGS = ["<b>bold</b>", None, "_hidden", "标签😀", 'a"quote', "$x^2$"]


def group(tag: str | None, messages: int, size: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "tags": tag,
        "messages": messages,
        "bytes": size,
        "body_bytes": size // 2,
        "first_stored": BEGIN,
        "last_stored": BEGIN + timedelta(hours=2),
        "share": 0.5,
        "messages_per_second": messages / 7200,
        "bytes_per_second": size / 7200,
    }


def facts(**changes: Any) -> Facts:
    broker = {"cluster": "c", "broker": "b&b", "messages": 21, "bytes": 2100, "first_stored": BEGIN}
    made = Facts(
        by="tag",
        brokers=[broker | {"last_stored": BEGIN + timedelta(hours=2)}],
        groups=[group(tag, 6 - at, 600 - 100 * at) for at, tag in enumerate(TAGS)],
        checks={name: [] for name in CHECKS},
        groups_in_all=len(TAGS),
    )
    if "groups" in changes:
        changes = {"groups_in_all": len(changes["groups"]), **changes}
    return replace(made, **changes)


def pictures() -> page.Pictures:
    by_time = [
        {"at": BEGIN + timedelta(minutes=30 * at), "topic": f"topic-{at % 8}", "bytes": 6000 * (at + 1)}
        for at in range(5)
    ]
    sizes = [{"from_size": 1 << n, "to_size": 2 << n, "messages": n} for n in range(7, 13)]
    return page.Pictures(timedelta(minutes=1), by_time, sizes)


ABOUT = page.About("/data/messages", 7)


@pytest.mark.parametrize(
    ("span", "step"), [(0, 60), (399 * 60, 60), (401 * 60, 3600), (400 * 3600, 3600), (401 * 86400, 2 * 86400)]
)
def test_a_plot_has_few_enough_steps(span: int, step: int) -> None:
    assert page.step_of(timedelta(seconds=span)) == timedelta(seconds=step)


def test_a_clock_that_ran_wild_leaves_the_plot_drawable() -> None:
    assert timedelta(days=365 * 7000) / page.step_of(timedelta(days=365 * 7000)) <= 400


def test_messages_without_a_time() -> None:
    timeless = {"cluster": "c", "broker": "b", "messages": 1, "bytes": 9, "first_stored": None, "last_stored": None}
    groups = [group("t", 1, 9) | {"first_stored": None, "last_stored": None}]
    without = facts(brokers=[timeless], groups=groups)
    drawn = page.render(without, page.Pictures(timedelta(minutes=1), [], pictures().sizes), ABOUT)
    assert "No message has a store time" in drawn
    assert "1 messages" in to_text(without, report.SHOWN)


# ------------------------------------------------------------------------------------------------------ without Spark
def test_text_shows_the_groups_and_what_the_checks_found() -> None:
    gaps = [{"broker": "b", "topic": "t", "queue_id": 0, "kind": "gap", "places": 2, "missing": 1234}]
    text = to_text(facts(checks={name: gaps if name == "gaps" else [] for name in CHECKS}), report.SHOWN)
    assert text.startswith("21 messages, 2.1 kB, 2024-05-30 07:00:00 to 2024-05-30 09:00:00 (2.0 h); c/b&b\n")
    assert "orders  (none)" in text
    assert "1,234 messages are missing in queues" in text
    assert "retries       none" in text


def test_numbers_given_twice_are_told_where_none_is_missing() -> None:
    again = [{"broker": "b", "topic": "t", "queue_id": 0, "kind": "repeat", "places": 3, "missing": 0}]
    text = to_text(facts(checks={name: again if name == "gaps" else [] for name in CHECKS}), report.SHOWN)
    assert "at 3 places numbers begin anew or are given twice" in text
    assert "go on by one" not in text


def test_messages_that_came_before_they_were_due() -> None:
    """Nothing comes too early: the table was loaded with another broker's levels."""
    level = {"level": 3, "scheduled": 5, "delivered": 5, "waiting": 0, "overdue": 0, "median_late_ms": -7_950.0}
    for latest, said in (
        (-7_901, "5 delayed messages, 0 overdue; up to 8,000 ms too early"),
        (7, "at most 7 ms late; up"),
    ):
        rows = [level | {"min_late_ms": -8_000, "max_late_ms": latest}]
        text = to_text(facts(checks={name: rows if name == "delays" else [] for name in CHECKS}), report.SHOWN)
        assert said in text
        assert "messageDelayLevel" in text


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
        ("TagA", "TagA"),
        ("订单 1-2", "订单 1-2"),
    ],
)
def test_no_cell_is_a_formula(text: str, written: str) -> None:
    (row,) = csv.DictReader(io.StringIO(report.to_csv(facts(groups=[group(text, 1, 100)])), newline=""))
    assert (row["tags"], row["topic"], row["messages"]) == (written, "orders", "1")


def test_a_terminal_obeys_no_tag() -> None:
    text = to_text(facts(groups=[group("a\x1b[2J\nb", 1, 100)]), report.SHOWN)
    assert "a\\x1b[2J\\x0ab" in text


def test_text_of_many_groups_says_how_many_it_leaves_out() -> None:
    many = [group(f"t{at}", 1, 100) for at in range(report.SHOWN + 5)]
    assert "... and 5 more" in to_text(facts(groups=many), report.SHOWN)


def test_an_empty_table_has_a_report() -> None:
    empty = facts(brokers=[], groups=[], checks={})
    assert to_text(empty, report.SHOWN) == "The table is empty."
    assert "The table is empty." in page.render(empty, page.Pictures(timedelta(minutes=1), [], []), ABOUT)
    assert report.to_csv(empty).splitlines()[0].startswith("topic,tags,messages,bytes")


def test_csv_holds_every_group_whatever_the_tag() -> None:
    rows = list(csv.DictReader(io.StringIO(report.to_csv(facts()), newline="")))
    assert [row["tags"] or None for row in rows] == TAGS
    assert [int(row["messages"]) for row in rows] == [6, 5, 4, 3, 2, 1]


class Page(HTMLParser):
    """Collects what a page is made of, and that its elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_the_page_is_one_sound_file() -> None:
    text = page.render(facts(), pictures(), ABOUT)
    found = Page(text)
    assert found.open == []
    ids = Counter(attributes["id"] for _, attributes in found.elements if "id" in attributes)
    assert max(ids.values()) == 1
    for name in re.findall(r'(?:href="#|url\(#)([^")]+)', text):
        assert name in ids
    # Nothing is fetched from anywhere, and nothing runs.
    assert not found.having("script") + found.having("link") + found.having("img") + found.having("iframe")
    assert {attributes["href"][0] for _, attributes in found.elements if attributes.get("href")} <= {"#"}  # type: ignore[index]
    assert not re.search(r"@import|url\((?!#)|<!ENTITY", text)


def test_the_page_can_be_read_aloud() -> None:
    found = Page(page.render(facts(), pictures(), ABOUT))
    assert found.having("html") == [{"lang": "en"}]
    described = [svg["aria-label"] for svg in found.having("svg")]
    assert len(described) == 3
    assert all(svg["role"] == "img" for svg in found.having("svg"))
    assert all(re.search(r"\d", text or "") for text in described)
    assert all(th["scope"] == "col" for th in found.having("th"))
    assert len(found.having("table")) == len(found.having("caption"))


def test_the_page_shows_odd_names_as_they_are() -> None:
    text = page.render(facts(), pictures(), ABOUT)
    assert "<b>" not in text
    plot, _, table = "".join(Page(text).words).partition("All by tag")
    for tag in filter(None, TAGS):
        assert tag in plot
        assert tag in table


def rendered() -> str:
    return page.render(facts(), pictures(), ABOUT)


def test_the_same_facts_make_the_same_page_in_any_process() -> None:
    """Another process has other hashes, so another order of sets, and other random numbers."""
    program = f"import runpy; print(runpy.run_path({__file__!r})['rendered'](), end='')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7", "PYTHONUTF8": "1"}
    other = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert other.stdout.decode() == rendered()


def test_the_page_holds_no_secret_of_the_tables_location() -> None:
    text = page.render(facts(), pictures(), page.About("s3://KEY:SECRET@bucket/messages?token=SECRET", 7))
    assert "SECRET" not in text
    assert "<h1>What fills messages</h1>" in text
    assert "s3://***@bucket/messages?token=***" in text


def test_plots_hold_their_numbers() -> None:
    svg = plots.bars("n", ["a", "b"], [3_000_000, 1_500_000], unit="bytes", description="d")
    assert "MB" in svg
    assert 'aria-label="d"' in svg
    assert "currentColor" in svg
    assert "#010203" not in svg


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
    messages_table.create_table(spark, path, time_zone="UTC", bodies=False)
    columns = spark.createDataFrame(
        pa.Table.from_pylist(rows, schema=schemas.MESSAGES), schemas.to_spark(schemas.MESSAGES)
    )
    columns.write.format("delta").mode("append").save(path)
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
@pytest.mark.parametrize("by", sorted(KEYS))
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


@pytest.mark.spark
@pytest.mark.golden
def test_all_outputs_at_once(table: tuple[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    path, rows = table
    html, listed = tmp_path / "report.html", tmp_path / "report.csv"
    html.write_text("that of the night before")
    found = report.run(ReportOptions(table=path, by="date", html=str(html), csv=str(listed)), Reporter(quiet=True))
    as_json = json.loads(found.to_json())
    assert as_json["groups"][0]["store_date"] == str(found["groups"][0]["store_date"])
    assert isinstance(found["groups"][0]["store_date"], date)
    assert set(as_json["checks"]) == set(CHECKS)
    assert Page(html.read_text(encoding="utf-8")).open == []
    assert len(listed.read_text(encoding="utf-8").splitlines()) == 1 + len({row["store_date"] for row in rows})
    assert "delayed messages" in found.to_text()


@pytest.mark.parametrize("what", ["html", "csv"])
def test_a_directory_is_no_file(what: str, tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match="directory"):
        report.run(ReportOptions(table="t", **{what: str(tmp_path)}), Reporter(quiet=True))


@pytest.mark.spark
def test_no_such_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        report.run(ReportOptions(table=str(tmp_path / "nothing")), Reporter(quiet=True))


# ------------------------------------------------------------------------------------------------------- in a browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_it(scheme: str, tmp_path: Path) -> None:
    """No network, nothing cut off at the side of a phone, plots as wide as the page, text in the colour of the mode."""
    source = page.render(facts(), pictures(), ABOUT)
    probe = """<script>addEventListener("load", () => {
      const svgs = [...document.querySelectorAll("svg")].map(s => Math.round(s.getBoundingClientRect().width));
      const inks = [...document.querySelectorAll("svg text")].map(text => getComputedStyle(text).fill);
      document.title = JSON.stringify({
        overflow: document.documentElement.scrollWidth - innerWidth, svgs,
        main: document.querySelector("main").clientWidth,
        inks: [...new Set(inks)], body: getComputedStyle(document.body).color,
        fetched: performance.getEntriesByType("resource").length});
    })</script>"""
    (tmp_path / "page.html").write_text(source.replace("</body>", probe + "</body>"), encoding="utf-8")
    dark = (
        ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else ["--blink-settings=preferredColorScheme=1"]
    )
    shown = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=500,900", *dark, "--dump-dom",
         (tmp_path / "page.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    seen = json.loads(title[1])
    assert seen["overflow"] <= 0
    assert seen["fetched"] == 0
    assert len(seen["svgs"]) == 3
    assert all(0.9 * seen["main"] - 40 < width <= seen["main"] for width in seen["svgs"])
    assert seen["inks"] == [seen["body"]]
    brightness = sum(map(int, re.findall(r"\d+", seen["body"])[:3]))
    assert (brightness > 380) is (scheme == "dark")
