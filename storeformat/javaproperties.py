r"""Files of properties as Java reads them: broker.conf, and what Spark takes its settings from.

One pair a line, ``name=value``; a name ends at the first ``=``, ``:`` or blank, ``#`` and ``!`` begin a comment, a
backslash takes the next line or the next character in, and the last one of a name counts.

Mirrors Properties#load; ``\uXXXX`` and ``\n`` are taken as plain letters.
"""

from __future__ import annotations

import re

_BLANKS = " \t\f"
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])+)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Returns the pairs of a file of properties, values with the blanks at their ends.

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
            name, value = (_ESCAPED.sub(r"\1", part) for part in match.groups())
            pairs[name] = value
        logical = ""
    return pairs
