"""The stores of a command line that names several: those of a path with placeholders, or of a file.

=================================  ===================================================================================
``/snap/{broker}/store``           each directory of ``/snap`` is a broker, also one in which there is no store
``s3://b/{cluster}/{broker}``      each directory of each directory
a line of a file                   ``store,cluster,broker,broker.conf`` (CSV); the last three may be missing or empty.
                                   Lines after ``#``, empty ones, and a first one with these names say nothing
=================================  ===================================================================================
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from jobs.contract.options import PLACEHOLDERS, FleetOptions, InspectOptions, LoadOptions
from storeformat.errors import MissingInput, UsageError
from storeformat.storage import files, locations

Options = TypeVar("Options", bound=FleetOptions)

_COLUMNS = ("store", "cluster", "broker", "broker.conf")
_NO_BROKERS = ("lost+found",)


@dataclass(frozen=True)
class Member(Generic[Options]):
    """One broker of a fleet: its names as far as they are known, and the options of a job on its store alone."""

    options: Options
    cluster: str | None
    broker: str | None

    @property
    def name(self) -> str:
        """What a person calls it."""
        return "/".join(filter(None, (self.cluster, self.broker))) or locations.without_secrets(self.options.store)


def members_of(options: Options) -> list[Member[Options]]:
    """Returns the brokers that the options name; raises MissingInput if there is none, UsageError if two would be one
    or share a path.
    """
    _refuse_offsets(options)
    if options.stores is None:
        found = [_member(options, {**names, "store": store}) for store, names in _matching(options.store)]
        if not found:
            raise MissingInput("no directory matches the placeholders", path=options.store)
    else:
        found = [_member(options, row) for row in _lines(options)]
    names = [member.name for member in found if member.broker]
    _refuse_twice("brokers of this name", names, "--broker '{broker}' takes the names of directories")
    stores = [locations.absolute(member.options.store) for member in found]
    _refuse_twice("lines with this store", stores, "name each store once")
    shared = [path for path in (*options.commitlog, *options.replicas) if not _has_placeholder(path)]
    if shared and len(found) > 1:
        raise UsageError(f"{len(found)} brokers would share {shared[0]}", advice="put {broker} into it")
    return found


def _refuse_twice(what: str, named: Iterable[str], advice: str) -> None:
    """Raises UsageError where one of the names comes more than once."""
    for name, count in Counter(named).most_common(1):
        if count > 1:
            raise UsageError(f"{count} {what}: {name}", advice=advice)


def _refuse_offsets(options: FleetOptions) -> None:
    """Raises UsageError for options that name a place in one log, and for two ways to name stores."""
    if options.stores is not None and options.store:
        raise UsageError("--store and --stores: give one of them")
    offsets: dict[str, Any] = {"--until-offset": options.until_offset}
    if isinstance(options, LoadOptions):
        offsets["--repair-from"] = options.repair_from
    if isinstance(options, InspectOptions):
        offsets |= {"--from": options.from_offset, "--limit": options.limit}
    given = [name for name, value in offsets.items() if value is not None]
    if given:
        raise UsageError(f"{given[0]} applies to one log: name one store")


def _has_placeholder(text: str) -> bool:
    return any(name in text for name in PLACEHOLDERS)


def _member(options: Options, named: Mapping[str, str]) -> Member[Options]:
    """Returns the broker of a row; ``named`` has what its line or its directories say."""
    known = {name: named.get(name, "") for name in ("cluster", "broker")}
    own: dict[str, Any] = {}
    if isinstance(options, LoadOptions):
        # What the command line says counts, but a line says it of its own store alone.
        for name, given in (("cluster", options.cluster), ("broker", options.broker)):
            own[name] = known[name] if options.stores and known[name] else _filled(given, known) or known[name]
            if not own[name]:
                raise UsageError(f"{named['store']} has no {name}", advice=f"give it in its line, or as --{name}")
        known |= own
    conf = named.get("broker.conf") or options.broker_conf
    alone = replace(
        options,
        store=named["store"],
        stores=None,
        commitlog=tuple(_filled(path, known) for path in options.commitlog),
        replicas=tuple(_filled(path, known) for path in options.replicas),
        broker_conf=_filled(conf, known) if conf else None,
        json=False,
        report_file=None,
        metrics=None,
        **own,
    )
    return Member(alone, known["cluster"] or None, known["broker"] or None)


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Returns a text with the names of a cluster and a broker in their places."""
    for placeholder in PLACEHOLDERS:
        name = placeholder[1:-1]
        if placeholder in text:
            if not known[name]:
                raise UsageError(
                    f"{text}: {placeholder} has no value", advice=f"put {placeholder} into --store, or give a line"
                )
            text = text.replace(placeholder, known[name])
    return text


def _lines(options: FleetOptions) -> Iterator[dict[str, str]]:
    path = str(options.stores)
    text = files.read_bytes(path).decode("utf-8-sig", "replace")
    lines = [line for line in io.StringIO(text) if line.strip() and not line.lstrip().startswith("#")]
    rows = [[field.strip() for field in row] for row in csv.reader(lines, skipinitialspace=True)]
    rows = rows[1:] if rows and tuple(rows[0]) == _COLUMNS[: len(rows[0])] else rows
    if not rows:
        raise UsageError(f"{path} names no store", advice=f"a line each: {','.join(_COLUMNS)}")
    for row in rows:
        if len(row) > len(_COLUMNS) or not row[0]:
            raise UsageError(f"{path}: {','.join(row)}", advice=f"a line has {','.join(_COLUMNS)}")
        yield dict(zip(_COLUMNS, row, strict=False))


def _matching(pattern: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the paths that a path with placeholders stands for, in the order of their names, and what stood there."""
    plain, settings = locations.split_settings(pattern)
    at = min(plain.index(name) for name in PLACEHOLDERS if name in plain)
    base, _, first = plain[:at].rpartition("/")
    root = base or ("/" if plain.startswith("/") else ".")
    yield from _below(root, (first + plain[at:]).split("/"), settings, {})


def _below(
    directory: str, parts: list[str], settings: str, names: dict[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    if not parts:
        yield directory + settings, names
        return
    part, rest = parts[0], parts[1:]
    for name, value in names.items():
        part = part.replace("{" + name + "}", value)
    if not _has_placeholder(part):
        yield from _below(locations.join(directory, part), rest, settings, names)
        return
    pattern = re.escape(part)
    for mark in PLACEHOLDERS:  # the second time it stands for the same
        name = mark[1:-1]
        pattern = pattern.replace(re.escape(mark), f"(?P<{name}>.+?)", 1).replace(re.escape(mark), f"(?P={name})")
    for entry in files.list_directory(directory + settings) or ():
        found = re.fullmatch(pattern, entry.name)
        if found and entry.is_directory and not entry.name.startswith(".") and entry.name not in _NO_BROKERS:
            path = locations.join(directory, entry.name)
            yield from _below(path, rest, settings, {**names, **found.groupdict()})
