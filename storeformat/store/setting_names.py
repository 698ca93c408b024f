"""All broker.conf settings, by ``settings.csv``, and what of a store depends on each.

==============  ======================================================================================================
column          says
==============  ======================================================================================================
class           MessageStoreConfig or BrokerConfig; empty for other classes
releases        those of 4.9.8, 5.1.4, 5.3.3 and 5.5.1 that have the setter, as ``javap`` lists it
effect          by the uses of each getter: ``files``: what files hold; ``kept``: what a start keeps or finds;
                ``delivered``: what is delivered; none where it is of threads, memory, networks or metrics
judged          ``yes`` where a rule of ``preflight`` follows it; else ``messages`` where it moves messages, their
                queues or offsets to places that no rule looks at, ``state`` where it moves something else
default         of a setting that this program uses; without one: false, or no text
==============  ======================================================================================================
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable
from importlib import resources

_TABLE = resources.files("storeformat.store").joinpath("settings.csv").read_text(encoding="ascii")
_ROWS = {row["name"]: row for row in csv.DictReader(_TABLE.splitlines())}
EFFECTS = {name: row["effect"] for name, row in _ROWS.items()}  # "" for settings without effect on a store
NOT_JUDGED = frozenset(name for name, row in _ROWS.items() if row["effect"] and row["judged"] != "yes")
MOVES = {name: row["judged"] for name, row in _ROWS.items() if row["judged"] in ("messages", "state")}
DEFAULTS = {name: row["default"] for name, row in _ROWS.items() if row["default"]}
_LACK = {
    "5.1.4": ("4.6", "4.8", "4.9"),
    "5.3.3": ("4.6", "4.8", "4.9", "5.0", "5.1"),
    "5.5.1": ("4.6", "4.8", "4.9", "5.0", "5.1", "5.3"),
}  # names of releases without a setting, by the first of the four releases that has it


def is_known(name: str, version: str) -> bool:
    """True if releases of a rules name may know a setting, or no table has it."""
    row = _ROWS.get(name)
    return row is None or version not in _LACK.get(row["releases"].partition(" ")[0], ())


def nearest_names(name: str, known: Iterable[str] = EFFECTS) -> list[str]:
    """Up to three similar names, best first, ignoring case; by default of settings."""
    by_lower = {other.lower(): other for other in known}
    return [by_lower[found] for found in difflib.get_close_matches(name.lower(), sorted(by_lower), 3, 0.7)]
