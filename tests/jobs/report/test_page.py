"""The report's page and plots."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.report_facts import ABOUT, BEGIN, TAGS, facts, group, pictures

from jobs.contract.report import size_text
from jobs.report import page, views
from jobs.report.views import CHECKS, statements
from jobs.spark.launch import CONF
from storeformat.errors import DependencyMissing
from storeformat.store.broker_rules import parse_properties


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


# ---------------------------------------------------------------------------------------------------------- page
@pytest.mark.parametrize(
    ("span", "step"),
    [
        (0, 60),
        (400 * 60, 60),
        (400 * 60 + 1, 3600),
        (400 * 3600, 3600),
        (400 * 3600 + 1, 86400),
        (400 * 86400, 86400),
        (400 * 86400 + 1, 2 * 86400),
        (801 * 86400, 3 * 86400),
        (7000 * 365 * 86400, 6388 * 86400),  # a clock that ran wild
    ],
)
def test_a_plot_has_few_enough_steps(span: int, step: int) -> None:
    assert page.step_of(timedelta(seconds=span)) == timedelta(seconds=step)


def test_a_page_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    page.require_plots()
    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else name)
    with pytest.raises(DependencyMissing) as caught:
        page.require_plots()
    assert str(caught.value) == "--html needs matplotlib"
    assert caught.value.advice == "./spark-submit.sh --setup --with plots installs it; --csv needs nothing"


def test_the_page_is_one_sound_file() -> None:
    text = page.render(facts(), pictures(), *ABOUT)
    found = Page(text)
    assert text.startswith('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>What fills ')
    assert (Path(page.__file__).parent / "page.css").read_text(encoding="utf-8") in text
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
    found = Page(page.render(facts(), pictures(), *ABOUT))
    assert found.having("html") == [{"lang": "en"}]
    described = [svg["aria-label"] for svg in found.having("svg")]
    assert len(described) == 3
    assert all(svg["role"] == "img" for svg in found.having("svg"))
    assert all(re.search(r"\d", text or "") for text in described)
    assert all(th["scope"] == "col" for th in found.having("th"))
    assert len(found.having("table")) == len(found.having("caption"))


def test_the_page_shows_odd_names_as_they_are() -> None:
    text = page.render(facts(), pictures(), *ABOUT)
    assert "<b>" not in text
    plot, _, table = "".join(Page(text).words).partition("All by tag")
    for tag in filter(None, TAGS):
        assert tag in plot
        assert tag in table


def rendered() -> str:
    return page.render(facts(), pictures(), *ABOUT)


def test_the_same_facts_make_the_same_page_in_any_process() -> None:
    """Another process has other hashes, so another order of sets, and other random numbers."""
    program = f"import runpy; print(runpy.run_path({__file__!r})['rendered'](), end='')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7", "PYTHONUTF8": "1"}
    other = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert other.stdout.decode() == rendered()


def test_the_page_holds_no_secret_of_the_tables_location() -> None:
    text = page.render(facts(), pictures(), "s3://KEY:SECRET@bucket/messages?token=SECRET", 7)
    assert "SECRET" not in text
    assert "<h1>What fills \u2066messages\u2069</h1>" in text
    assert "s3://***@bucket/messages?token=***" in text


# ------------------------------------------------------------------------------------------- what plots are made of
Drawn = tuple[str, tuple[Any, ...], dict[str, Any]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """What plots were asked for."""
    calls: list[Drawn] = []

    def recorder(kind: str) -> Any:
        def record(*given: Any, **named: Any) -> str:
            calls.append((kind, given, named))
            return f"<svg {kind}>"

        return record

    for kind in ("bars", "layers"):
        monkeypatch.setattr(page, kind, recorder(kind))
    return calls


def figure(title: str, kind: str, said: str) -> str:
    return f"<section><h2>{title}</h2>\n<figure><svg {kind}><figcaption>{said}</figcaption></figure></section>"


@pytest.mark.parametrize("count", [1, 3, 4, 13, 14])
def test_the_plot_of_groups(drawn: list[Drawn], count: int) -> None:
    """Thirteen have a bar each, of more the twelve largest; others are one bar together."""
    groups = [group(f"t{number}", 1000 + number, 5000 - number) | {"share": 0.02} for number in range(count)]
    broker = facts().brokers[0] | {"bytes": 100_000}
    text = page._groups(facts(by="tag", brokers=[broker], groups=groups, groups_in_all=1300 + count))
    said = "\u2066orders \u200e/ t0\u2069 holds 2% of all bytes (5.0 kB in 1,000 messages)."
    said += f" The three largest of {1300 + count:,} hold {2 * min(count, 3)}%."
    shown = count if count <= 13 else 12
    labels = [f"orders \u200e/ t{number}" for number in range(shown)]
    values = [5000 - number for number in range(shown)]
    assert drawn == [
        (
            "bars",
            ("groups", [*labels, f"{1300 + count - shown:,} others"], [*values, 100_000 - sum(values)]),
            {"unit": "bytes", "description": f"Bytes by tag. {said}"},
        )
    ]
    assert text == figure("Bytes by tag", "bars", said)


@pytest.mark.parametrize(("count", "more"), [(3, ""), (4, " The three largest of 4 hold 60%.")])
def test_few_groups_have_no_others(drawn: list[Drawn], count: int, more: str) -> None:
    groups = [{**group(None, 1, 10), "host": f"h{number}", "share": 0.2} for number in range(count)]
    page._groups(facts(by="host", groups=groups))
    ((_, given, named),) = drawn
    assert given == ("groups", [f"h{number}" for number in range(count)], [10] * count)
    assert named["description"] == f"Bytes by host. \u2066h0\u2069 holds 20% of all bytes (10 B in 1 message).{more}"


@pytest.mark.parametrize(
    ("step", "title", "what"),
    [
        (timedelta(minutes=1), "minute", "minute"),
        (timedelta(hours=1), "hour", "hour"),
        (timedelta(days=1), "day", "day"),
        (timedelta(days=2), "2 days", "2 days"),
    ],
)
def test_the_plot_over_time(drawn: list[Drawn], step: timedelta, title: str, what: str) -> None:
    """An interval in which nothing was stored is one, too."""
    seconds = int(step.total_seconds())
    rows = [
        {"at": BEGIN + 2 * step, "topic": "b", "bytes": 3 * seconds},
        {"at": BEGIN, "topic": "a", "bytes": 2 * seconds},
        {"at": BEGIN, "topic": "b", "bytes": 1 * seconds},
        {"at": BEGIN + 2 * step, "topic": "a", "bytes": 6 * seconds},
    ]
    broker = facts().brokers[0] | {"bytes": 7200 * 2}  # in two hours
    text = page._over_time(facts(brokers=[broker]), page.Pictures(step, rows, []))
    edges = [BEGIN + number * step for number in range(4)]
    said = f"The busiest {what} began at {edges[2]:%Y-%m-%d %H:%M} with {size_text(9 * seconds)}, 9 B/s: "
    said += "4.5 times the average."
    assert drawn == [
        (
            "layers",
            ("times", edges, [("a", [2 * seconds, 0, 6 * seconds]), ("b", [seconds, 0, 3 * seconds])]),
            {"description": f"Bytes by {title} and topic. {said}"},
        )
    ]
    assert text == figure(f"Bytes by {title} and topic", "layers", said)


def test_less_than_an_interval_has_no_peak(drawn: list[Drawn]) -> None:
    """60 bytes in two seconds are 30 a second: the page does not say that their minute had 1 a second."""
    broker = facts().brokers[0] | {"bytes": 60, "last_stored": BEGIN + timedelta(seconds=2)}
    rows = [{"at": BEGIN, "topic": "a", "bytes": 60}]
    text = page._over_time(facts(brokers=[broker]), page.Pictures(timedelta(minutes=1), rows, []))
    assert f"The busiest minute began at {BEGIN:%Y-%m-%d %H:%M} with 60 B.<" in text


def test_topics_over_time_that_have_no_colour_are_all_others(drawn: list[Drawn]) -> None:
    rows = [{"at": BEGIN, "topic": None, "bytes": 600}]
    rows += [{"at": BEGIN, "topic": f"t{number}", "bytes": 60 * number} for number in range(5)]
    page._over_time(facts(), page.Pictures(timedelta(minutes=1), rows, []))
    ((_, given, _),) = drawn
    assert given[2] == [*((f"t{number}", [60 * number]) for number in (4, 3, 2, 1, 0)), ("all others", [600])]


def test_the_plot_of_sizes(drawn: list[Drawn]) -> None:
    sizes = [(512, 1024, 1), (1024, 2048, 6), (1 << 20, 2 << 20, 3)]
    rows = [dict(zip(("from_size", "to_size", "messages"), size, strict=True)) for size in sizes]
    text = page._sizes(page.Pictures(timedelta(minutes=1), [], rows))
    said = "60% of the records have 1 KiB to below 2 KiB."
    assert drawn == [
        (
            "bars",
            ("sizes", ["512 B to 1 KiB", "1 KiB to 2 KiB", "1 MiB to 2 MiB"], [1, 6, 3]),
            {"unit": "messages", "description": f"Messages by size. {said}"},
        )
    ]
    assert text == figure("How large messages are", "bars", said)


@pytest.mark.parametrize(("brokers", "more"), [(1, ""), (8, ""), (9, " and 1 more")])
def test_the_head_of_the_page(brokers: int, more: str) -> None:
    one = facts().brokers[0] | {"messages": 1000, "bytes": 7_200_000}
    found = facts(brokers=[{**one, "broker": f"b&{number}"} for number in range(brokers)])
    names = ", ".join(f"c/b&amp;{number}" for number in range(min(brokers, 8)))
    size, rate = {1: ("7.2 MB", "1.0 kB"), 8: ("57.6 MB", "8.0 kB"), 9: ("64.8 MB", "9.0 kB")}[brokers]
    assert page._heading("a < b", found, "/data/<m>", 7) == (
        "<header><h1>a &lt; b</h1>\n"
        f"<p>\u2066/data/&lt;m&gt;\u2069, version 7. Brokers: \u2066{names}{more}\u2069. Stored from "
        "<time>2024-05-30</time> <time>07:00:00</time> to <time>2024-05-30</time> <time>09:00:00</time> UTC.</p>\n"
        f"<dl><div><dt>messages</dt><dd>{brokers},000</dd></div>"
        f"<div><dt>in the commit log</dt><dd>{size}</dd></div>"
        "<div><dt>from first to last</dt><dd>2.0 h</dd></div>"
        f"<div><dt>on average</dt><dd>{rate}/s</dd></div></dl></header>"
    )
    assert "Brokers: \u2066none\u2069." in page._heading("t", facts(brokers=[]), *ABOUT)


def test_the_table_of_groups() -> None:
    one = group("a", 1234, 5678) | {"share": 0.12345, "messages_per_second": 1234.5, "bytes_per_second": 1500.0}
    text = page._group_table(facts(by="tag", groups=[one] * 51, groups_in_all=1051))
    head, caption, rest = text.partition("<caption>By tag, largest first: the first 50 of 1,051 rows</caption>")
    assert caption
    assert head.startswith("<section><h2>All by tag</h2>")
    titles = ["topic", "tags", "messages", "bytes", "share", "messages per second", "bytes per second"]
    titles += ["first stored", "last stored"]
    assert re.findall(r'<th scope="col"( class="n")?>(.*?)</th>', rest) == [
        (' class="n"' if 2 <= number <= 6 else "", title) for number, title in enumerate(titles)
    ]
    cells = [
        "<bdi>orders</bdi>",
        "<bdi>a</bdi>",
        "1,234",
        "5.7 kB",
        "12.3%",
        "1,234",
        "1.5 kB/s",
        "<time>2024-05-30</time> <time>07:00:00</time>",
        "<time>2024-05-30</time> <time>09:00:00</time>",
    ]
    assert re.findall("<td.*?>(.*?)</td>", rest) == cells * 50
    assert rest.endswith("</div></section>")
    assert "<caption>By tag, largest first</caption>" in page._group_table(facts(by="tag", groups=[one] * 50))


def test_what_the_page_says_of_checks() -> None:
    steps = [{"cluster": "c", "steps": number} for number in range(51)]
    parts = page._checks(facts(checks={**{name: [] for name in CHECKS}, "clock_steps": steps}))
    assert parts[:5] == [
        "<section><h2>Retries</h2><p>None.</p></section>",
        "<section><h2>Duplicates</h2><p>None.</p></section>",
        "<section><h2>Transactions</h2><p>None.</p></section>",
        "<section><h2>Delays</h2><p>None.</p></section>",
        "<section><h2>Gaps</h2><p>None: queue offsets are consecutive.</p></section>",
    ]
    assert "<caption>Clock steps: the first 50 of 51 rows</caption>" in parts[5]
    said = "The broker&#x27;s clock went back 1,275 times; 0 producers&#x27; clocks are ahead of it."
    assert parts[5] == (f"<section><h2>Clocks</h2><p>{said}</p>" + page._table("Clock steps", steps, 51) + "</section>")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("share", None, ("\u2013", False)),
        ("steps", datetime(1, 5, 3, 7, 8, 9), ("<time>0001-05-03</time> <time>07:08:09</time>", False)),
        ("steps", 1234567, ("1,234,567", True)),
        ("steps", 12345.678, ("12,346", True)),
        ("steps", 1234.5678, ("1,235", True)),
        ("share", 0.1234, ("12.3%", True)),
        ("messages_per_second", 1.2345, ("1.23", True)),
        ("steps", "1 < 2", ("<bdi>1 &lt; 2</bdi>", False)),
        ("steps", "a\u202eb", ("<bdi>a\\u202eb</bdi>", False)),
    ],
)
def test_a_cell_is_text_and_stands_right_if_it_is_a_number(name: str, value: Any, shown: tuple[str, bool]) -> None:
    assert page._cell(name, value) == shown


def test_bytes_have_a_unit_in_every_table() -> None:
    assert '<td class="n">123.5 MB</td>' in page._table("retries", [{"messages": 7, "bytes": 123_456_789}], 1)


def test_a_column_stands_right_if_any_of_its_cells_is_a_number() -> None:
    text = page._table("a & b", [{"first_name": "x", "n": None}, {"first_name": None, "n": 5}], 2)
    assert text == (
        '<div class="wide" tabindex="0" role="region" aria-label="a &amp; b"><table><caption>a &amp; b</caption>\n'
        '<thead><tr><th scope="col">first name</th><th scope="col" class="n">n</th></tr></thead>\n'
        '<tbody><tr><td><bdi>x</bdi></td><td class="n">\u2013</td></tr>\n'
        '<tr><td>\u2013</td><td class="n">5</td></tr></tbody></table></div>'
    )


@pytest.mark.parametrize(
    ("first", "seconds"), [("0001-01-01", 0), ("0001-01-01", 315_537_897_540), ("9999-12-31", 86_340)]
)
def test_clocks_may_say_any_year(first: str, seconds: int) -> None:
    """The last interval ends with the last year, and years have four digits."""
    begin = datetime.fromisoformat(f"{first}T00:00:00+00:00")
    end = begin + timedelta(seconds=seconds)
    step = page.step_of(end - begin)
    rows = [
        {"at": begin + (end - begin) // step * step, "topic": "a", "bytes": 60},
        {"at": begin, "topic": "a", "bytes": 1},
    ]
    broker = facts().brokers[0] | {"first_stored": begin, "last_stored": end}
    text = page.render(facts(brokers=[broker]), page.Pictures(step, rows, pictures().sizes), *ABOUT)
    assert f"Stored from <time>{first}</time>" in text
    assert f"began at {str(rows[0]['at'])[:16]} with 6" in text


def test_without_store_times_the_page_has_no_average() -> None:
    broker = facts().brokers[0] | {"first_stored": None, "last_stored": None}
    text = page.render(facts(brokers=[broker]), page.Pictures(timedelta(minutes=1), [], pictures().sizes), *ABOUT)
    assert "No message has a store time" in text
    assert "Stored from" not in text
    assert "on average" not in text
    assert "/s</td>" not in text


# ------------------------------------------------------------------------------------------------------- in a browser
@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_it(scheme: str, tmp_path: Path) -> None:
    """No network, nothing cut off at the side of a phone, plots as wide as the page, text in the colour of the mode."""
    names = ["x" * 200, "\u0639\u05d0 " * 60]
    groups = [group(name, 6, 600) | {"topic": name} for name in names]
    source = page.render(facts(groups=groups), pictures(), *ABOUT)
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


# --------------------------------------------------------------------------------------------------------- plots
def drawing(svg: str, height: float) -> Page:
    """What a plot is made of; all are of one width, and as high as told, in inches."""
    found = Page(svg)
    (head,) = found.having("svg")
    assert head["viewbox"] == f"0 0 {5.6 * 72:g} {height * 72:g}"
    assert (head["role"], head["aria-label"], head.get("width"), head.get("height")) == (
        "img",
        "what & why",
        None,
        None,
    )
    assert "#010203" not in svg
    assert "<metadata" not in svg
    assert {re.sub("text-anchor: [a-z]+; ", "", text["style"] or "") for text in found.having("text")} == {
        "font-size: 11px; fill: currentColor"
    }  # and no font but the page's
    assert "currentColor" in svg
    return found


def filled(found: Page, colour: str) -> list[tuple[float, float]]:
    """Width and height of each area of a colour, whose outline may stand elsewhere."""
    outlines = {path.get("id"): path["d"] or "" for path in found.having("path")}
    areas = [path["d"] or "" for path in found.having("path") if f"fill: {colour}" in (path.get("style") or "")]
    areas += [
        outlines[(use["xlink:href"] or "").removeprefix("#")]
        for use in found.having("use")
        if f"fill: {colour}" in (use.get("style") or "")
    ]
    sizes = []
    for area in areas:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", area)]
        sizes.append((max(numbers[::2]) - min(numbers[::2]), max(numbers[1::2]) - min(numbers[1::2])))
    return sizes


def test_bars_are_as_long_as_their_values() -> None:
    svg = page.bars("n", ["a", "b", "c"], [4_000_000, 2_000_000, 0], unit="bytes", description="what & why")
    found = drawing(svg, 0.8 + 0.3 * 3)
    (first, _), (second, _), (third, _) = filled(found, "#0072b2")
    assert first == pytest.approx(2 * second, abs=0.01)
    assert third == pytest.approx(0, abs=0.01)
    words = [word.strip() for word in found.words]
    assert {"0 B", "2 MB", "4 MB", "bytes"} <= {*words}
    rows = dict(re.findall(r'y="([\d.]+)"[^>]*>(a|b|c)</text>', svg))
    assert [rows[place] for place in sorted(rows, key=float)] == ["a", "b", "c"]  # the first on top
    assert all(name.startswith("n-") for name in re.findall(r'id="([^"]+)"', svg))


def test_a_name_that_is_shortened_is_told_whole() -> None:
    """Also of two that are the same when shortened."""
    names = ["<" + "a" * 20 + middle + "b" * 20 for middle in "xy"]
    for svg in (
        page.bars("n", names, [2, 1], unit="bytes", description="what & why"),
        page.layers("n", [BEGIN, BEGIN + timedelta(1)], [(name, [1]) for name in names], description="what & why"),
    ):
        told = re.findall("…b{12}<title>(.*?)</title></text>", svg)
        assert told == [name.replace("<", "&lt;") for name in names]


@pytest.mark.parametrize("count", [1, 3])
def test_layers_lie_on_top_of_each_other(count: int) -> None:
    times = [BEGIN + timedelta(minutes=number) for number in range(count + 1)]
    series = [("one", [3_000_000] * count), ("_two", [1_000_000] * count)]
    svg = page.layers("r", times, series, description="what & why")
    found = drawing(svg, 2.8 + 0.25)
    first, second = (max(height for _, height in filled(found, colour)) for colour in ("#0072b2", "#e69f00"))
    assert first == pytest.approx(3 * second, abs=0.01)
    words = [word.strip() for word in found.words]
    assert {"one", "\u200b_two", "4 MB", "bytes", "store time, UTC"} <= set(words)


@pytest.mark.parametrize("span", [timedelta(minutes=5), timedelta(days=1300), timedelta(days=1800)])
def test_times_have_a_few_dates_and_no_warning(span: timedelta) -> None:
    """Of these spans matplotlib had no interval between five and nine dates."""
    svg = page.layers("t", [BEGIN, BEGIN + span], [("one", [1])], description="what & why")
    assert 2 <= len(re.findall('id="t-xtick_', svg)) <= 7


def test_text_of_a_plot_keeps_its_size_and_takes_the_font_of_the_page() -> None:
    """As matplotlib 3.9 writes it, and as later releases do."""
    text = (
        '<?xml version="1.0"?>\n<svg width="1pt" height="2pt"><text style="font: 10px \'DejaVu Sans\', serif"/>'
        "<text style=\"font-size: 9.5px; font-family: 'DejaVu Sans'; fill: red\"/></svg>"
    )
    figure: Any = SimpleNamespace(savefig=lambda file, **_: file.write(text))
    assert page._svg(figure, "sizes", "a & b", []) == (
        '<svg role="img" aria-label="a &amp; b"><text style="font-size: 10px"/>'
        '<text style="font-size: 9.5px; fill: red"/></svg>'
    )


# ----------------------------------------------------------------------------------------------------- data size
@pytest.mark.parametrize(
    ("given", "size", "found"),
    [("8", 5, 1), (None, 5, 1), ("200", 5, None), ("8", (1 << 63) - 1, None)]
    + [("8", size, found) for size, found in ((0, 1), (16 << 20, 1), ((16 << 20) + 1, 2), (1 << 50, 2000))],
)
def test_what_a_user_set_stays(given: str | None, size: int, found: int | None) -> None:
    said: dict[str, Any] = {}
    started = {} if given is None else {views.SHUFFLE_PARTITIONS: given}
    context = SimpleNamespace(getConf=lambda: started)
    session: Any = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(set=said.__setitem__))
    views.fit_session(session, size)
    assert said == ({} if found is None else {views.SHUFFLE_PARTITIONS: found})


def test_the_default_is_that_of_the_configuration() -> None:
    settings = parse_properties((CONF / "spark-defaults.conf").read_text())
    assert settings[views.SHUFFLE_PARTITIONS] == views.OUR_DEFAULT
    assert int(settings["spark.sql.sources.parallelPartitionDiscovery.parallelism"]) <= 32  # tasks of every VACUUM


# ----------------------------------------------------------------------------------------------------- functions
def test_statements_end_with_a_semicolon_at_a_lines_end() -> None:
    text = "-- a comment; of one line\nSELECT 1;\n\nSELECT ';', 2 -- two\n  FROM t;\nSELECT 3"
    found = statements(text)
    assert [part.split()[0] for part in found] == ["SELECT"] * 3
    assert found[0] == "SELECT 1"
    assert found[1].startswith("SELECT ';', 2")
    assert found[1].endswith("FROM t")
    assert found[2] == "SELECT 3"
