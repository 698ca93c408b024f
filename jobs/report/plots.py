"""Plots as SVG text without scripts, fonts or links; the same numbers give the same bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito: told apart also by people who see fewer colours.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#999999")
_INK = "#010203"
"""Placeholder for the page's text colour in the SVG."""
_WIDTH = 5.6
"""Inches: keeps text readable on a phone."""
_SHORT = 24
"""Characters of a label: so many of the widest leave room for the bars."""
_SCALES = (1e12, 1e9, 1e6, 1e3)
_LARGE = ("trillion", "billion", "million", "thousand")
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
    with _style(name):
        figure, axes = _figure(0.8 + 0.3 * len(labels))
        scale, unit = _scaled(max(values, default=0), unit)
        axes.barh(range(len(labels)), [value / scale for value in values], color=COLOURS[0], height=0.7)
        axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(unit)
        return _svg(figure, name, description, labels)


def layers(
    name: str, edges: Sequence[datetime], series: Sequence[tuple[str, Sequence[int]]], *, description: str
) -> str:
    """Stacked steps of bytes over time, between consecutive ``edges``."""
    with _style(name):
        labels = [label for label, _ in series]
        columns = 2 if max(map(len, labels)) <= _SHORT // 2 else 1
        figure, axes = _figure(2.8 + 0.25 * -(-len(labels) // columns))
        scale, unit = _scaled(max(map(sum, zip(*(values for _, values in series), strict=True))), "bytes")
        base = [0.0] * len(edges)
        for number, (label, values) in enumerate(series):
            top = [low + value / scale for low, value in zip(base, [*values, values[-1]], strict=True)]
            axes.fill_between(
                edges, base, top, step="post", color=COLOURS[number % len(COLOURS)], label=_short(label), linewidth=0
            )
            base = top
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
        axes.set_xlim(edges[0], edges[-1])
        _dates(axes)
        figure.legend(loc="outside lower center", ncols=columns, frameon=False)
        return _svg(figure, name, description, labels)


@contextmanager
def _style(name: str) -> Iterator[None]:
    import matplotlib as mpl  # noqa: PLC0415  (an extra; nothing else of the program needs it)

    with mpl.rc_context(_SETTINGS | {"svg.hashsalt": name}):
        yield


def _figure(height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415  (not pyplot: no window, no global state)

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _dates(axes: Any) -> None:
    import matplotlib.dates  # noqa: PLC0415

    dates: Any = matplotlib.dates
    locator = dates.AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=timezone.utc))
    axes.set_xlabel("store time, UTC")


def _scaled(largest: float, unit: str) -> tuple[float, str]:
    names = ("TB", "GB", "MB", "kB") if unit == "bytes" else (f"{name} {unit}" for name in _LARGE)
    return next((found for found in zip(_SCALES, names, strict=True) if largest >= found[0]), (1.0, unit))


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
            shown = escape(_short(label), quote=False)
            svg = svg.replace(f">{shown}</text>", f">{shown}<title>{escape(label)}</title></text>", 1)
    head, close, rest = svg.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(description)}"{close}{rest}'
