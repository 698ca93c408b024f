"""The page of ``report --html`` is one sound file that people can read, see and hear."""

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
from typing import Any

import pytest
from support.report_facts import ABOUT, BEGIN, TAGS, facts, pictures

from jobs.report import page, plots
from storeformat.errors import DependencyMissing


@pytest.mark.parametrize(
    ("span", "step"), [(0, 60), (399 * 60, 60), (401 * 60, 3600), (400 * 3600, 3600), (401 * 86400, 2 * 86400)]
)
def test_a_plot_has_few_enough_steps(span: int, step: int) -> None:
    assert page.step_of(timedelta(seconds=span)) == timedelta(seconds=step)


def test_a_page_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    page.require_plots()
    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else name)
    with pytest.raises(DependencyMissing, match="matplotlib"):
        page.require_plots()


def test_a_clock_that_ran_wild_leaves_the_plot_drawable() -> None:
    assert timedelta(days=365 * 7000) / page.step_of(timedelta(days=365 * 7000)) <= 400


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


def test_a_table_that_goes_on_says_so() -> None:
    assert page._caption("clock_steps", 50) == "Clock steps"
    assert page._caption("clock_steps", 1234) == "Clock steps: the first 50 of 1,234 rows"


def test_the_page_holds_no_secret_of_the_tables_location() -> None:
    text = page.render(facts(), pictures(), page.About("s3://KEY:SECRET@bucket/messages?token=SECRET", 7))
    assert "SECRET" not in text
    assert "<h1>What fills messages</h1>" in text
    assert "s3://***@bucket/messages?token=***" in text


def test_topics_that_are_not_drawn_are_all_others() -> None:
    by_time = [{"at": BEGIN, "topic": f"topic-{at:02}", "bytes": 6000 * (at + 1)} for at in range(30)]
    words = "".join(Page(page._over_time(page.Pictures(timedelta(minutes=1), by_time, []))).words)
    assert "all others" in words
    assert "topic-29" in words
    assert "topic-00" not in words


def test_plots_hold_their_numbers() -> None:
    svg = plots.bars("n", ["a", "b"], [3_000_000, 1_500_000], unit="bytes", description="d")
    assert "MB" in svg
    assert 'aria-label="d"' in svg
    assert "currentColor" in svg
    assert "#010203" not in svg


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ("\u2013", False)),
        (datetime(2024, 5, 3, 7, 8, 9), ("2024-05-03 07:08:09", False)),
        (1234567, ("1,234,567", True)),
        (12345.678, ("1.235e+04", True)),
        (1234.5678, ("1,235", True)),
        (page.Amount("1 < 2"), ("1 &lt; 2", True)),
        ("1 < 2", ("1 &lt; 2", False)),
    ],
)
def test_a_cell_is_text_and_stands_right_if_it_is_a_number(value: Any, shown: tuple[str, bool]) -> None:
    assert page._cell(value) == shown


def test_a_column_stands_right_if_any_of_its_cells_is_a_number() -> None:
    text = page._table("a & b", [{"first_name": "x", "n": None}, {"first_name": None, "n": 5}])
    assert text == (
        '<div class="wide" tabindex="0" role="region" aria-label="a &amp; b"><table><caption>a &amp; b</caption>\n'
        '<thead><tr><th scope="col">first name</th><th scope="col" class="n">n</th></tr></thead>\n'
        '<tbody><tr><td>x</td><td class="n">\u2013</td></tr>\n'
        '<tr><td>\u2013</td><td class="n">5</td></tr></tbody></table></div>'
    )


# ------------------------------------------------------------------------------------------------------- in a browser
@pytest.mark.thorough
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
