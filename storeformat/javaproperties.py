r"""Java properties files: broker.conf and Spark settings.

One pair a line, ``name=value``; a name ends at the first ``=``, ``:`` or blank, ``#`` and ``!`` begin a comment, a
backslash continues the line or escapes a character, and the last value of a name counts.

Mirrors Properties#load, including ``\uXXXX`` and ``\n``. Java decodes the bytes as ISO-8859-1.
"""

from __future__ import annotations

import re

from storeformat.errors import WrongSettings

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
