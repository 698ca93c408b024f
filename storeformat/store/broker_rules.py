r"""Rules by release (FORMAT.md, What differs by release), and all settings of broker.conf.

Behaviour changed at few releases, so seven names stand for all. Each rule is a field of ``BrokerRules``; nothing else
compares releases. Splitting and scanning differ only for a property with an empty name or a separator in its value,
which clients of these releases do not send.

From IndexFile#putKey, MessageDecoder#string2messageProperties, ConsumeQueue#checkMultiDispatchQueue, #correctMinOffset,
MappedFileQueue#getConsumeQueueMappedFileByTime and DLedgerCommitLog#dledgerRecoverAbnormally at the tags
rocketmq-all-4.6.0 to 5.5.0; stores of 4.6.0, 4.7.0, 4.7.1, 4.8.0, 4.9.0, 4.9.1 and 4.9.4 were compared.

Settings, by ``settings.csv``:

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

broker.conf is a properties file (Properties#load, as ISO-8859-1): one ``name=value`` a line; a name ends at the first
``=``, ``:`` or blank, ``#`` and ``!`` begin a comment, a backslash continues the line or escapes a character, as in
``\n`` and ``\uXXXX``, and the last value of a name counts.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from storeformat.errors import WrongSettings

DEFAULT = "5.3"
MOST_RECOVERED_SEGMENTS = 10  # ``commitLogRecoverMaxNum`` from 5.4.0 on (``bounded_recovery``)

Release = tuple[int, int, int]
NEWEST: Release = (5, 5, 1)
NEWEST_DIFFERS = (
    "; beside these rules it has no pullOffsetTable in consumerOffset.json, and looks for delayed, timer and "
    "half messages under their real topic"
)  # beyond its rules; changes no byte of a store
_END: Release = (6, 0, 0)


def _since(*release: int, until: Release = _END, in_all: bool = False) -> Any:
    """A rule from a release on. A name of several releases has it if one of them does; with ``in_all``, if all do."""
    return field(default=False, metadata={"since": release, "until": until, "in_all": in_all})


@dataclass(frozen=True)
class BrokerRules:
    version: str
    count_every_put: bool = _since(4, 0, 0, until=(4, 7, 1))  # hashSlotCount of index headers counts entries, not slots
    split_parser: bool = _since(4, 0, 0, until=(4, 9, 1))  # properties by String#split
    reads_several_paths: bool = _since(4, 9, 2)  # several log paths, by default below the root
    corrects_delay_offsets: bool = _since(4, 9, 2)  # the start resets a delay offset beyond its queue's end
    reads_batches_and_timers: bool = _since(5, 0, 0)  # batch queues and timer messages
    wants_dup_info: bool = _since(5, 0, 0)  # duplicationEnable: recovery refuses properties without DUP_INFO
    deletes_at_once: bool = _since(5, 0, 0)  # a full disk deletes segments at any hour: diskSpaceCleanForciblyRatio
    trusts_clean_stop: bool = _since(5, 0, 0)  # no dispatch after a clean stop (see dispatches_after_queues)
    may_read_long_topics: bool = _since(5, 1, 0)  # some of the releases read two-byte topic lengths (V2)
    reads_long_topics: bool = _since(5, 1, 0, in_all=True)  # all of them do
    passes_over_directories: bool = _since(5, 1, 0, in_all=True)  # a directory in the log does not end the start
    deletes_empty_file: bool = _since(5, 1, 3, in_all=True)  # a start with an empty last file deletes it
    wants_property_crc: bool = _since(5, 2, 0)  # forceVerifyPropCRC: recovery refuses no property CRC
    trims_settings: bool = _since(5, 2, 0)  # broker.conf texts lose blanks around them
    knows_rocksdb: bool = _since(5, 2, 0)  # storeType=defaultRocksDB: queues and configuration in RocksDB
    dispatch_uncommitted: bool = _since(5, 2, 0)  # recovery after a crash dispatches uncommitted DLedger entries
    starts_at_furthest_queue: bool = _since(5, 3, 2)  # clean start reads from the furthest queue's segment
    dispatches_after_queues: bool = _since(5, 3, 2, in_all=True)  # after a clean stop: what is after all queues
    takes_offsets_file: bool = _since(5, 3, 2)  # a broker with RocksDB queues imports consumerOffset.json
    bounded_recovery: bool = _since(5, 4, 0)  # recovery goes back ten segments at most
    index_tags: bool = _since(5, 4, 0)  # TAGS are index keys too
    checkpoint_queue_offset: bool = _since(5, 4, 0)  # the checkpoint holds logicsPhysicalOffset, unset in 5.4.0
    restores_databases: bool = _since(5, 4, 0)  # from JSON (``config/``) and the log (queues, bounded)
    leaves_gaps: bool = _since(5, 0, 0, until=(5, 0, 1))  # a message that cannot be stored takes its queue offset along
    no_light_topics: tuple[str, ...] = ()
    no_light_prefixes: tuple[str, ...] = ()  # topics without light queues (from 5.1.2)


_FIRST: dict[str, Release] = {
    "4.6": (4, 0, 0), "4.8": (4, 7, 1), "4.9": (4, 9, 1), "5.0": (5, 0, 0), "5.1": (5, 1, 1), "5.3": (5, 2, 0),
    "5.5": (5, 4, 0),
}  # fmt: skip
VERSIONS = tuple(_FIRST)  # names, not numbers, for several releases each: never order or compare them
_NO_LIGHT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "5.1": (("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"), ("%RETRY%",)),
    **dict.fromkeys(("5.3", "5.5"), (("SCHEDULE_TOPIC_XXXX",), ("%RETRY%", "rmq_sys_"))),
}


def _rules(name: str, first: Release, end: Release) -> BrokerRules:
    """Rules of the releases from ``first`` to before ``end``."""
    topics, prefixes = _NO_LIGHT.get(name, ((), ()))
    flags = {
        rule.name: (rule.metadata["since"] <= first if rule.metadata["in_all"] else rule.metadata["since"] < end)
        and first < rule.metadata["until"]
        for rule in fields(BrokerRules)
        if rule.metadata
    }
    return BrokerRules(name, **flags, no_light_topics=topics, no_light_prefixes=prefixes)


_RULES = {
    name: _rules(name, first, end)
    for (name, first), end in zip(_FIRST.items(), [*_FIRST.values(), _END][1:], strict=True)
}
_RELEASE = re.compile(
    r"(?:rocketmq-)?(?:all-|release-)?v?([0-9]{1,2})[._]([0-9])(?:[._]([0-9]{1,2}))?(?:-[a-z0-9.-]+)?",
    re.IGNORECASE,
)
_ANY = 1000


def release_numbers(text: str) -> Release:
    """Numbers of ``5.1.4``, ``V5_1_4`` or ``rocketmq-all-5.1.4``; a missing third is ``_ANY``. Raises ValueError."""
    written = _RELEASE.fullmatch(text.strip())
    numbers = written.groups() if written is not None else (0, 0, 0)
    major, minor, patch = (_ANY if number is None else int(number) for number in numbers)
    if major not in (4, 5):
        raise ValueError(f"{text!r} is no release of RocketMQ 4 or 5, such as 5.3.3, and none of {', '.join(VERSIONS)}")
    return major, minor, patch


def rules_of(release: str) -> BrokerRules:
    """Rules of a release or of one of ``VERSIONS``. Raises ValueError for an ambiguous or unknown release."""
    if release in _RULES:
        return _RULES[release]
    numbers = release_numbers(release)
    first, last = (
        next(name for name, since in reversed(_FIRST.items()) if (*numbers[:2], patch) >= since)
        for patch in (numbers[2] % _ANY, numbers[2])
    )
    if first != last:
        raise ValueError(f"releases of {release!r} have the rules of {first} or of {last}: give all three numbers")
    if numbers[2] == _ANY:
        return _RULES[last]
    return _rules(last, numbers, (*numbers[:2], numbers[2] + 1))


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
