"""JSON as a broker reads it: what fastjson accepts beyond the standard in files of ``config/``.

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

Tested with the jars of 5.3.3 (1.2.83) and 5.5.0 (2.0.59). What only one of them accepts is refused: a broker of the
other release would take the file for torn.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

# Linear time: text without an end becomes one token, which is not JSON.
_TOKEN = re.compile(
    r"""(?P<string>(?<!\\)"(?:[^"\\]|\\.)*")
      | (?<!\\)'(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<comment>/\*.*?\*/)
      | (?P<open>/\*.*)
      | (?<!\d)(?P<number>-?\d+)(?P<colon>\s*:)
      | ,(?P<close>\s*[\]}])""",
    re.VERBOSE | re.DOTALL,
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(text: str) -> Any:
    """Parse as a broker does. Raises ValueError where it throws, RecursionError for deep nesting. Integer keys become
    text, half a surrogate pair ``?`` (as where a broker writes it), and numbers beyond a double the largest one.
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
