r"""All broker.conf settings, by ``settings.csv``, and what of a store depends on each.

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

Java properties files: broker.conf and Spark settings.

One pair a line, ``name=value``; a name ends at the first ``=``, ``:`` or blank, ``#`` and ``!`` begin a comment, a
backslash continues the line or escapes a character, and the last value of a name counts.

Mirrors Properties#load, including ``\uXXXX`` and ``\n``. Java decodes the bytes as ISO-8859-1.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable
from importlib import resources

from storeformat.errors import WrongSettings

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


_BLANKS = " \t\f"
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])+)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_UNITS = ("utf-16-be", "surrogatepass")  # two escapes may be one letter
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_WRITTEN = {"\\": "\\\\", **{letter: f"\\{name}" for name, letter in _LETTERS.items()}}


def parse_properties(text: str) -> dict[str, str]:
    """Parse properties; values keep their trailing blanks. Raises WrongSettings where Java throws.

    >>> parse_properties("# sizes" + chr(10) + "mappedFileSizeCommitLog = 1073741824")
    {'mappedFileSizeCommitLog': '1073741824'}
    """
    pairs, logical = {}, ""
    for line in [*re.split(r"\r\n|\r|\n", text), ""]:
        logical += line.lstrip(_BLANKS)
        if not logical.startswith(("#", "!")) and len(logical) - len(logical.rstrip("\\")) & 1:
            logical = logical[:-1]
            continue
        match = _PROPERTY.match(logical)
        if match is not None and not logical.startswith(("#", "!")):
            name, value = (_ESCAPED.sub(_letter, part).encode(*_UNITS).decode(*_UNITS) for part in match.groups())
            pairs[name] = value
        logical = ""
    return pairs


def _letter(escaped: re.Match[str]) -> str:
    code, letter = escaped.groups()
    if letter == "u":
        raise WrongSettings("Java does not read this: a \\u needs four hexadecimal digits", found=escaped.string)
    return chr(int(code, 16)) if code else _LETTERS.get(letter, letter)


def as_written(text: str) -> str:
    r"""Escape a value for a properties file.

    >>> print(as_written(" a\\b" + chr(10) + chr(0xE9)))
    \ a\\b\n\u00e9
    """
    units = text.encode(*_UNITS).hex(" ", 2).split()
    letters = ((chr(int(unit, 16)), f"\\u{unit}") for unit in units)
    written = "".join(_WRITTEN.get(letter, letter if " " <= letter <= "~" else code) for letter, code in letters)
    return "\\" + written if written.startswith(" ") else written
