"""The stores that ``--stores FILE`` names: CSV, a line each, ``store,cluster,broker,broker.conf``. The last three may
be missing or empty; lines after ``#``, empty ones, and a first one with these names say nothing.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from jobs.contract.options import FleetOptions, InspectOptions, LoadOptions
from storeformat.errors import UsageError
from storeformat.storage import files, locations

Options = TypeVar("Options", bound=FleetOptions)

_COLUMNS = ("store", "cluster", "broker", "broker.conf")


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
    """Returns the brokers that the options name; raises UsageError if two would be one or share a path."""
    _refuse_offsets(options)
    found = [_member(options, row) for row in _lines(options)]
    names = [member.name for member in found if member.broker]
    _refuse_twice("brokers of this name", names, "name each broker in its line")
    stores = [locations.absolute(member.options.store) for member in found]
    _refuse_twice("lines with this store", stores, "name each store once")
    shared = (*options.commitlog, *options.replicas)
    if shared and len(found) > 1:
        raise UsageError(
            f"{len(found)} brokers would share {shared[0]}",
            advice="name one store; where its log is, the broker.conf of a line can say, too",
        )
    return found


def _refuse_twice(what: str, named: Iterable[str], advice: str) -> None:
    """Raises UsageError where one of the names comes more than once."""
    for name, count in Counter(named).most_common(1):
        if count > 1:
            raise UsageError(f"{count} {what}: {name}", advice=advice)


def _refuse_offsets(options: FleetOptions) -> None:
    """Raises UsageError for options that name a place in one log, and for two ways to name stores."""
    if options.store:
        raise UsageError("--store and --stores: give one of them")
    offsets: dict[str, Any] = {"--until-offset": options.until_offset}
    if isinstance(options, LoadOptions):
        offsets["--repair-from"] = options.repair_from
    if isinstance(options, InspectOptions):
        offsets |= {"--from": options.from_offset, "--limit": options.limit}
    given = [name for name, value in offsets.items() if value is not None]
    if given:
        raise UsageError(f"{given[0]} applies to one log: name one store")


def _member(options: Options, row: Mapping[str, str]) -> Member[Options]:
    names = {name: row.get(name, "") for name in ("cluster", "broker")}
    own: dict[str, Any] = {}
    if isinstance(options, LoadOptions):
        own = names = {"cluster": names["cluster"] or options.cluster, "broker": names["broker"] or options.broker}
        for name, value in own.items():
            if not value:
                raise UsageError(f"{row['store']} has no {name}", advice=f"give it in its line, or as --{name}")
    alone = replace(
        options,
        store=row["store"],
        stores=None,
        broker_conf=row.get("broker.conf") or options.broker_conf,
        json=False,
        report_file=None,
        metrics=None,
        **own,
    )
    return Member(alone, names["cluster"] or None, names["broker"] or None)


def _lines(options: FleetOptions) -> Iterator[dict[str, str]]:
    path = str(options.stores)
    text = files.read_bytes(path).decode("utf-8-sig", "replace")
    lines = [line for line in io.StringIO(text) if line.strip() and not line.lstrip().startswith("#")]
    try:
        rows = [[field.strip() for field in row] for row in csv.reader(lines, skipinitialspace=True)]
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from error
    rows = rows[1:] if rows and tuple(rows[0]) == _COLUMNS[: len(rows[0])] else rows
    if not rows:
        raise UsageError(f"{path} names no store", advice=f"a line each: {','.join(_COLUMNS)}")
    for row in rows:
        if len(row) > len(_COLUMNS) or not row[0]:
            raise UsageError(f"{path}: {','.join(row)}", advice=f"a line has {','.join(_COLUMNS)}")
        yield dict(zip(_COLUMNS, row, strict=False))
