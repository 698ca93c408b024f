"""Converters of option texts, which raise ``argparse.ArgumentTypeError``. Must import with a bare Python."""

from __future__ import annotations

import argparse
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

from storeformat.queues.topic_filter import TopicFilter
from storeformat.store.broker_rules import rules_of
from storeformat.store.setting_names import EFFECTS, nearest_names

Artefact = Literal["consumequeue", "index", "checkpoint", "consumer-offsets", "delay-offsets", "timers"]
ARTEFACTS: tuple[Artefact, ...] = ("consumequeue", "index", "checkpoint")
"""What a broker derives from its log."""
CONSUMER_OFFSETS: Artefact = "consumer-offsets"
JUDGED: tuple[Artefact, ...] = (*ARTEFACTS, CONSUMER_OFFSETS)
"""What ``verify`` checks."""
DELAY_OFFSETS: Artefact = "delay-offsets"
TIMERS: Artefact = "timers"
MADE: tuple[Artefact, ...] = (*JUDGED, DELAY_OFFSETS, TIMERS)
"""What ``rebuild`` can make."""


@dataclass(frozen=True)
class Given:
    """argparse settings of one option; ``flag`` if it differs from the field's name, ``many`` if it is repeatable."""

    value: Callable[[str], Any] | tuple[str, ...]
    metavar: str | None = None
    flag: str | None = None
    many: bool = False


def natural(text: str) -> int:
    """A whole number from 0 on."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    if value >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return value


def positive(text: str) -> int:
    """A whole number from 1 on."""
    value = natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 is too small")
    return value


def milliseconds(text: str) -> int:
    """Milliseconds since 1970, given as such or as ISO 8601 with a zone."""
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither milliseconds since 1970 nor a time with its zone, such as 2026-01-31T23:59:59.123Z"
        )
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def release(text: str) -> str:
    """A release or the name of a set of rules."""
    try:
        rules_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def path(text: str) -> str:
    """A path or URI; ``~`` is expanded, and ``file:/x`` becomes ``file:///x``."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the path is empty")
    if re.match("[a-z][a-z0-9+.-]+:/[^/]", text, re.I) and not text.startswith("file:"):
        raise argparse.ArgumentTypeError(f"{text} has one slash after its scheme; a URI has two, a local path ./ first")
    if text.rstrip("/").endswith(":") and "://" in text and not text.startswith("file:"):
        raise argparse.ArgumentTypeError(f"{text} is incomplete: it has a scheme and no path")
    if text.startswith("file:/") and not text.startswith("file://"):
        return "file://" + text.removeprefix("file:")
    return str(Path(text).expanduser()) if text == "~" or text.startswith("~/") else text


def name(text: str) -> str:
    """A name that is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def setting(text: str) -> tuple[str, str]:
    """Name and value of a broker setting."""
    name, equals, value = (side.strip() for side in text.partition("="))
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    if name not in EFFECTS:
        near = " or ".join(nearest_names(name))
        raise argparse.ArgumentTypeError(f"brokers know no setting {name!r}" + (f"; is it {near}?" if near else ""))
    return name, value


def time_zone(text: str) -> str:
    """The name of a time zone."""
    try:
        zoneinfo.ZoneInfo(text)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise argparse.ArgumentTypeError(f"{text}: no such time zone") from None
    return text


def topic_filter(text: str) -> TopicFilter:
    """The filter ``TOPIC`` or ``TOPIC:QUEUE``."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a topic needs a name")
    named = TopicFilter.parse(text)
    strange = {"/", "\0"} if named.topic.startswith("%LMQ%") else {"/", "\0", ":"}  # no broker judges light queues
    if strange & {*named.topic} or named.topic in (".", ".."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a topic; one queue is TOPIC:QUEUE")
    return named


def artefacts(text: str, known: tuple[Artefact, ...] = JUDGED) -> tuple[Artefact, ...]:
    """The artefacts of a comma-separated list."""
    named = {part.strip() for part in text.split(",")}
    unknown = sorted(named - set(known))
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return tuple(name for name in known if name in named)


def rebuilt_artefacts(text: str) -> tuple[Artefact, ...]:
    """The artefacts of a comma-separated list that ``rebuild`` can make."""
    return artefacts(text, MADE)


def paths(text: str) -> tuple[str, ...]:
    """The paths of a comma-separated list."""
    named = tuple(path(part.strip()) for part in text.split(",") if part.strip())
    if not named:
        raise argparse.ArgumentTypeError("the path is empty")
    return named
