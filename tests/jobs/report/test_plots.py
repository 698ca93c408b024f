"""The plots of the page: what they draw is as large as the values, and their text fits the page."""

from __future__ import annotations

import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from support.html_page import Page
from support.report_facts import BEGIN

from jobs.report import plots


@pytest.mark.parametrize(
    ("largest", "unit", "expected"),
    [
        (999, "bytes", (1.0, "bytes")),
        (1000, "bytes", (1e3, "kB")),
        (999_999, "bytes", (1e3, "kB")),
        (1e6, "bytes", (1e6, "MB")),
        (1e9, "bytes", (1e9, "GB")),
        (1e12, "bytes", (1e12, "TB")),
        (5e15, "bytes", (1e12, "TB")),
        (999, "messages", (1.0, "messages")),
        (2e6, "messages", (1e6, "million messages")),
    ],
)
def test_the_unit_of_an_axis(largest: float, unit: str, expected: tuple[float, str]) -> None:
    assert plots._scaled(largest, unit) == expected


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("a" * 24, "a" * 24),
        ("a" * 15 + "b" * 10, "a" * 11 + "\u2026" + "aa" + "b" * 10),
        ("_x", "\u200b_x"),
        ("x_", "x_"),
    ],
)
def test_a_label_that_fits(label: str, shown: str) -> None:
    assert plots._short(label) == shown


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
    svg = plots.bars("n", ["a", "b", "c"], [4_000_000, 2_000_000, 0], unit="bytes", description="what & why")
    found = drawing(svg, 0.8 + 0.3 * 3)
    (first, _), (second, _), (third, _) = filled(found, "#0072b2")
    assert first == pytest.approx(2 * second, abs=0.01)
    assert third == pytest.approx(0, abs=0.01)
    assert "MB" in [word.strip() for word in found.words]
    rows = dict(re.findall(r'y="([\d.]+)"[^>]*>(a|b|c)</text>', svg))
    assert [rows[place] for place in sorted(rows, key=float)] == ["a", "b", "c"]  # the first on top
    assert all(name.startswith("n-") for name in re.findall(r'id="([^"]+)"', svg))


def test_a_name_that_is_shortened_is_told_whole() -> None:
    """Also of two that are the same when shortened."""
    names = ["<" + "a" * 20 + middle + "b" * 20 for middle in "xy"]
    for svg in (
        plots.bars("n", names, [2, 1], unit="bytes", description="what & why"),
        plots.layers("n", [BEGIN, BEGIN + timedelta(1)], [(name, [1]) for name in names], description="what & why"),
    ):
        told = re.findall("…b{12}<title>(.*?)</title></text>", svg)
        assert told == [name.replace("<", "&lt;") for name in names]


@pytest.mark.parametrize("count", [1, 3])
def test_layers_lie_on_top_of_each_other(count: int) -> None:
    times = [BEGIN + timedelta(minutes=number) for number in range(count + 1)]
    series = [("one", [3_000_000] * count), ("_two", [1_000_000] * count)]
    svg = plots.layers("r", times, series, description="what & why")
    found = drawing(svg, 2.8 + 0.25)
    first, second = (max(height for _, height in filled(found, colour)) for colour in ("#0072b2", "#e69f00"))
    assert first == pytest.approx(3 * second, abs=0.01)
    words = [word.strip() for word in found.words]
    assert {"one", "\u200b_two", "MB", "store time, UTC"} <= set(words)


@pytest.mark.parametrize("span", [timedelta(minutes=5), timedelta(days=1300), timedelta(days=1800)])
def test_times_have_a_few_dates_and_no_warning(span: timedelta) -> None:
    """Of these spans matplotlib had no interval between five and nine dates."""
    svg = plots.layers("t", [BEGIN, BEGIN + span], [("one", [1])], description="what & why")
    assert 2 <= len(re.findall('id="t-xtick_', svg)) <= 7


def test_text_of_a_plot_keeps_its_size_and_takes_the_font_of_the_page() -> None:
    """As matplotlib 3.9 writes it, and as later releases do."""
    text = (
        '<?xml version="1.0"?>\n<svg width="1pt" height="2pt"><text style="font: 10px \'DejaVu Sans\', serif"/>'
        "<text style=\"font-size: 9.5px; font-family: 'DejaVu Sans'; fill: red\"/></svg>"
    )
    figure: Any = SimpleNamespace(savefig=lambda file, **_: file.write(text))
    assert plots._svg(figure, "sizes", "a & b", []) == (
        '<svg role="img" aria-label="a &amp; b"><text style="font-size: 10px"/>'
        '<text style="font-size: 9.5px; fill: red"/></svg>'
    )
