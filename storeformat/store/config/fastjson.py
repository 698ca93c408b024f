"""The JSON that a broker reads: what fastjson accepts beyond the standard, as far as files in ``config/`` need it.

========================================  ==============  ==============
text                                      fastjson 1.2    fastjson2 2.0
========================================  ==============  ==============
integer keys without quotes               accepted        accepted
strings and keys in single quotes         accepted        accepted
a comma before a closing bracket          accepted        accepted
comments of the form ``/* */``            accepted        accepted
NUL bytes after the end                   accepted        accepted
names as keys without quotes              accepted        refused
anything else after the end               refused         refused
cut anywhere before its last bracket      refused         refused
NUL bytes alone                           refused         refused
========================================  ==============  ==============

Tried with the jars of 5.3.3 (1.2.83) and 5.5.0 (2.0.59). What only one of the two accepts is refused here: a broker of
the other release would take the file for torn.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

# No byte is looked at from many places: what has no end is taken as one token, which is then no JSON.
_TOKEN = re.compile(
    r"""(?P<string>(?<!\\)"(?:[^"\\]|\\.)*")
      | (?<!\\)'(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<comment>/\*.*?\*/)
      | (?P<open>/\*.*)
      | (?P<number>-?\d+)(?P<colon>\s*:)?
      | ,(?P<close>\s*[\]}])""",
    re.VERBOSE | re.DOTALL,
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(text: str) -> Any:
    """Returns what a broker reads out of a text; raises ValueError where it would throw, and RecursionError for what
    nests too deep. Integer keys become text, half a surrogate pair ``?`` (as where a broker writes it), and numbers
    beyond a double the largest one.
    """
    standard = _TOKEN.sub(_as_standard, text.removeprefix("\ufeff").rstrip("\0"))
    found = json.loads(standard, strict=False, parse_constant=_refuse, parse_float=_finite)
    if _SURROGATE.search(standard):
        found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    return found


def _as_standard(found: re.Match[str]) -> str:
    if found["single"] is not None:
        return json.dumps(found["single"].replace("\\'", "'"))
    if found["comment"] is not None:
        return " "
    if found["colon"] is not None:
        return f'"{found["number"]}"{found["colon"]}'
    return found["close"] if found["close"] is not None else found[0]


def _finite(number: str) -> float:
    return max(min(float(number), sys.float_info.max), -sys.float_info.max)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a value")
