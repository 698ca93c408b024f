"""The page of ``report --html``: one self-contained and accessible HTML file."""

from __future__ import annotations

import importlib.util
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from html import escape
from importlib import resources
from itertools import starmap
from typing import TYPE_CHECKING, Any

from jobs.contract.report import printable, size_text
from jobs.report import views
from jobs.report.views import KEYS, Facts, Row, answers, key_text, moment, number_text, rate_text, sentences, span_text
from storeformat.errors import DependencyMissing
from storeformat.storage import locations

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

# Okabe and Ito: distinguishable also for people who see fewer colours.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#999999")
_MOST_BARS = 12
_MOST_ROWS = 50
_STEPS = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1))
_MOST_STEPS = 400
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)

_INK = "#010203"
"""Placeholder for the page's text colour in the SVG."""
_WIDTH = 5.6
"""Inches: keeps text readable on a phone."""
_SHORT = 24
"""Characters of a label: so many of the widest leave room for the bars."""
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 11,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#88888855",
    "text.parse_math": False,
}


def bars(name: str, labels: Sequence[str], values: Sequence[float], *, unit: str, description: str) -> str:
    """Horizontal bars, the first on top; ``unit`` is bytes or messages."""
    with _plot(name, 0.8 + 0.3 * len(labels)) as (figure, axes):
        axes.barh(range(len(labels)), values, color=COLOURS[0], height=0.7)
        axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=5)
        _amounts(axes.xaxis, unit)
        return _svg(figure, name, description, labels)


def layers(
    name: str, edges: Sequence[datetime], series: Sequence[tuple[str, Sequence[int]]], *, description: str
) -> str:
    """Stacked steps of bytes over time, between consecutive ``edges``."""
    labels = [label for label, _ in series]
    columns = 2 if max(map(len, labels)) <= _SHORT // 2 else 1
    with _plot(name, 2.8 + 0.25 * -(-len(labels) // columns)) as (figure, axes):
        base = [0] * len(edges)
        for number, (label, values) in enumerate(series):
            top = [low + value for low, value in zip(base, [*values, values[-1]], strict=True)]
            axes.fill_between(
                edges, base, top, step="post", color=COLOURS[number % len(COLOURS)], label=_short(label), linewidth=0
            )
            base = top
        _amounts(axes.yaxis, "bytes")
        axes.set_ylim(bottom=0)
        axes.set_xlim(edges[0], edges[-1])
        _dates(axes)
        figure.legend(loc="outside lower center", ncols=columns, frameon=False)
        return _svg(figure, name, description, labels)


@contextmanager
def _plot(name: str, height: float) -> Iterator[tuple[Figure, Any]]:
    import matplotlib as mpl  # noqa: PLC0415  (an extra; nothing else of the program needs it)
    from matplotlib.figure import Figure  # noqa: PLC0415  (not pyplot: no window, no global state)

    with mpl.rc_context(_SETTINGS | {"svg.hashsalt": name}):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure, figure.subplots()


def _amounts(axis: Any, unit: str) -> None:
    from matplotlib.ticker import EngFormatter  # noqa: PLC0415

    axis.set_major_formatter(EngFormatter("B" if unit == "bytes" else ""))
    axis.set_label_text(unit)


def _dates(axes: Any) -> None:
    import matplotlib.dates  # noqa: PLC0415

    dates: Any = matplotlib.dates
    locator = dates.AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=timezone.utc))
    axes.set_xlabel("store time, UTC")


def _short(label: str) -> str:
    """A label that fits; matplotlib hides legend labels with a leading underscore."""
    label = label if len(label) <= _SHORT else label[: _SHORT // 2 - 1] + "…" + label[-_SHORT // 2 :]
    return "\u200b" + label if label.startswith("_") else label


def _svg(figure: Figure, name: str, description: str, labels: Sequence[str]) -> str:
    text = io.StringIO()
    with warnings.catch_warnings():
        # Text is drawn by the page's fonts; matplotlib only measures it.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Ids are unique in a file; several files make one page.
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    # The page's font: matplotlib 3.9 names one in ``font``, later releases in ``font-family``.
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r"font-family: [^;\"]*; ", "", svg)
    svg = svg.replace(_INK, "currentColor")
    for label in labels:
        if len(label) > _SHORT:
            name_text = escape(_short(label), quote=False)
            svg = svg.replace(f">{name_text}</text>", f">{name_text}<title>{escape(label)}</title></text>", 1)
    head, close, rest = svg.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(description)}"{close}{rest}'


@dataclass(frozen=True)
class Pictures:
    """Bytes by interval of length ``step`` and topic (None for all but the five largest), and messages by size."""

    step: timedelta
    bytes_by_time: Sequence[Row]
    sizes: Sequence[Row]


def require_plots() -> None:
    """Raise DependencyMissing without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise DependencyMissing(
            "--html needs matplotlib",
            advice="./spark-submit.sh --setup --with plots installs it; --csv needs nothing",
        )


def step_of(span: timedelta) -> timedelta:
    """Plot interval of a span: a minute, an hour, or as many days as needed."""
    found = next((step for step in _STEPS if span <= _MOST_STEPS * step), None)
    return found or _STEPS[-1] * -(-span // (_MOST_STEPS * _STEPS[-1]))


def read_pictures(spark: SparkSession, facts: Facts) -> Pictures:
    """Data for the plots from the registered views."""
    first, last = facts.first_stored, facts.last_stored
    step = step_of(last - first if first else timedelta())
    seconds = int(step.total_seconds())
    begin = int(first.timestamp()) if first else 0
    begin -= begin % min(seconds, 86400)  # not of all steps: one may have begun before year 1
    by_time = f"""
        WITH largest AS (
          SELECT topic FROM storage_by_topic GROUP BY topic ORDER BY sum(bytes) DESC, topic
          LIMIT {len(COLOURS) - 1}
        )
        SELECT timestamp_seconds(unix_seconds(minute) - (unix_seconds(minute) - {begin}) % {seconds}) AS at,
               largest.topic, sum(bytes) AS bytes
          FROM throughput LEFT JOIN largest USING (topic) WHERE minute IS NOT NULL GROUP BY ALL ORDER BY at, topic"""
    by_size = "SELECT from_size, to_size, sum(messages) AS messages FROM size_buckets GROUP BY ALL ORDER BY from_size"
    return Pictures(step, *answers(spark, (by_time, by_size)))


def render(facts: Facts, pictures: Pictures, table: str, version: int) -> str:
    """The page of one version of a table."""
    title = f"What fills {_isolated(printable(locations.name_of(table)))}"
    parts = [_heading(title, facts, table, version)]
    if facts.brokers:
        parts += [_groups(facts), _over_time(facts, pictures), _sizes(pictures), _group_table(facts), *_checks(facts)]
    else:
        parts.append("<p>The table is empty.</p>")
    style = resources.files("jobs.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


def _isolated(name: str) -> str:
    """The name between bidi marks, so that right-to-left text does not reorder its surroundings."""
    return f"\u2066{name}\u2069"


def _heading(title: str, facts: Facts, table: str, version: int) -> str:
    cards = [("messages", f"{facts.messages:,}"), ("in the commit log", size_text(facts.bytes))]
    stored = ""
    if facts.first_stored:
        cards += [("from first to last", span_text(facts.span)), ("on average", rate_text(facts.mean_rate))]
        stored = f" Stored from {_time(facts.first_stored)} to {_time(facts.last_stored)} UTC."
    brokers = printable(facts.names_of_brokers(8)) or "none"
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in cards)
    return (
        f"<header><h1>{escape(title)}</h1>\n"
        f"<p>{escape(_isolated(printable(table)))}, version {version}. "
        f"Brokers: {escape(_isolated(brokers))}.{stored}</p>\n<dl>{cells}</dl></header>"
    )


def _groups(facts: Facts) -> str:
    largest = list(facts.groups if len(facts.groups) <= _MOST_BARS + 1 else facts.groups[:_MOST_BARS])
    # The mark keeps names that are written from right to left in the order of the keys.
    labels = [" \u200e/ ".join(key_text(group[key]) for key in KEYS[facts.by]) for group in largest]
    values = [group["bytes"] for group in largest]
    others = facts.groups_in_all - len(largest)
    if others:
        labels.append(f"{others:,} others")
        values.append(facts.bytes - sum(values))
    first = largest[0]
    said = (
        f"{_isolated(labels[0])} holds {first['share']:.0%} of all bytes ({size_text(first['bytes'])} in "
        f"{first['messages']:,} message{'s' if first['messages'] != 1 else ''})."
    )
    if facts.groups_in_all > 3:
        said += f" The three largest of {facts.groups_in_all:,} hold {sum(g['share'] for g in largest[:3]):.0%}."
    drawn = bars("groups", labels, values, unit="bytes", description=f"Bytes by {facts.by}. {said}")
    return _figure(f"Bytes by {facts.by}", said, drawn)


def _over_time(facts: Facts, pictures: Pictures) -> str:
    if not pictures.bytes_by_time:
        return "<p>No message has a store time of this calendar.</p>"
    of_topic = Counter[str | None]()
    for row in pictures.bytes_by_time:
        of_topic[row["topic"]] += row["bytes"]
    ranked = sorted(of_topic, key=lambda topic: (topic is None, -of_topic[topic], topic))
    first = min(row["at"] for row in pictures.bytes_by_time)
    last = max(row["at"] for row in pictures.bytes_by_time)
    count = (last - first) // pictures.step + 1
    bytes_at = {topic: [0] * count for topic in ranked}
    for row in pictures.bytes_by_time:
        bytes_at[row["topic"]][(row["at"] - first) // pictures.step] += row["bytes"]
    times = [first + number * pictures.step for number in range(count)]
    edges = [*times, times[-1] + min(pictures.step, _LAST - times[-1])]
    total = [sum(values) for values in zip(*bytes_at.values(), strict=True)]
    peak = max(range(count), key=total.__getitem__)
    what = {timedelta(minutes=1): "minute", timedelta(hours=1): "hour", timedelta(days=1): "day"}.get(
        pictures.step, f"{pictures.step.days:,} days"
    )
    said = f"The busiest {what} began at {str(times[peak])[:16]} with {size_text(total[peak])}"
    rate = total[peak] / pictures.step.total_seconds()
    if rate >= facts.mean_rate:  # less than the mean where all was stored in less than an interval
        said += f", {rate_text(rate)}: {rate / facts.mean_rate:.1f} times the average"
    said += "."
    title = f"Bytes by {what} and topic"
    series = [("all others" if topic is None else key_text(topic), values) for topic, values in bytes_at.items()]
    drawn = layers("times", edges, series, description=f"{title}. {said}")
    return _figure(title, said, drawn)


def _sizes(pictures: Pictures) -> str:
    labels = [f"{_binary(row['from_size'])} to {_binary(row['to_size'])}" for row in pictures.sizes]
    values = [row["messages"] for row in pictures.sizes]
    most = max(range(len(values)), key=values.__getitem__)
    said = f"{values[most] / sum(values):.0%} of the records have {labels[most].replace(' to ', ' to below ')}."
    drawn = bars("sizes", labels, values, unit="messages", description=f"Messages by size. {said}")
    return _figure("How large messages are", said, drawn)


def _binary(size: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return f"{size} B"


def _figure(title: str, said: str, svg: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n<figure>{svg}<figcaption>{escape(said)}</figcaption></figure></section>"


def _group_table(facts: Facts) -> str:
    columns = [*KEYS[facts.by], "messages", "bytes", "share"]
    if facts.first_stored:
        columns += ["messages_per_second", "bytes_per_second", "first_stored", "last_stored"]
    rows = [{name: group[name] for name in columns} for group in facts.groups[:_MOST_ROWS]]
    table = _table(f"By {facts.by}, largest first", rows, facts.groups_in_all)
    return f"<section><h2>All by {facts.by}</h2>{table}</section>"


def _checks(facts: Facts) -> list[str]:
    parts = []
    for name, said in sentences(facts.checks).items():
        checks = ("clock_steps", "clocks_ahead") if name == "clocks" else (name,)
        tables = "".join(
            _table(check.replace("_", " ").capitalize(), rows, len(rows))
            for check in checks
            if (rows := facts.checks.get(check))
        )
        parts.append(
            f"<section><h2>{name.capitalize()}</h2><p>{escape(said[0].upper() + said[1:])}.</p>{tables}</section>"
        )
    return parts


def _table(caption: str, rows: Sequence[Row], in_all: int) -> str:
    if in_all > _MOST_ROWS:
        caption += f": the first {_MOST_ROWS} of {in_all:,} rows"
    cells = [list(starmap(_cell, row.items())) for row in rows[:_MOST_ROWS]]
    numeric = [any(row[column][1] for row in cells) for column in range(len(cells[0]))]
    right = [' class="n"' if one else "" for one in numeric]
    head = "".join(
        f'<th scope="col"{side}>{escape(name.replace("_", " "))}</th>'
        for name, side in zip(rows[0], right, strict=True)
    )
    body = "\n".join(
        "<tr>" + "".join(f"<td{side}>{text}</td>" for (text, _), side in zip(row, right, strict=True)) + "</tr>"
        for row in cells
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _time(value: datetime) -> str:
    """A time as HTML that breaks only before the time of day."""
    return " ".join(f"<time>{part}</time>" for part in moment(value).split())


def _cell(name: str, value: Any) -> tuple[str, bool]:
    """A value of a column as HTML, and whether it is a number."""
    if value is None:
        return "–", False  # noqa: RUF001  (what tables have where there is nothing)
    if name in views.AMOUNTS:
        return views.AMOUNTS[name](value), True
    if isinstance(value, datetime):
        return _time(value), False
    if isinstance(value, int):
        return f"{value:,}", True
    if isinstance(value, float):
        return number_text(value, 4), True
    return f"<bdi>{escape(key_text(value))}</bdi>", False
