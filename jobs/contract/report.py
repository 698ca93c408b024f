"""The result of a run: a report as text and JSON, or error lines."""

from __future__ import annotations

import json
import platform
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.contract.verdict import EXIT_CODE_OF_STATUS
from storeformat import errors
from storeformat.errors import StoreFormatError, WriteFailed
from storeformat.storage import local_files
from storeformat.storage.locations import without_secrets

_ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("jobs", "storeformat", "udfs")
LONGEST_LIST = 10
"""Entries of a list in the text form; JSON has all, and messages are never cut."""
LONGEST_LINE = 10
"""Facts in one line; an entry with more becomes a block of lines."""
DATA = frozenset({"records", "messages", "groups", "topics"})
"""Facts with producers' data: JSON keeps them unchanged, even if they look like URIs."""

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Controls, line ends, direction marks, surrogates and zero-width characters: a terminal obeys or hides them."""


def printable(text: str) -> str:
    """One line of text, safe for a terminal and without secrets of URIs; stderr and text reports use it."""
    return _UNSAFE.sub(_escape, without_secrets(text))


def is_printable(text: str) -> bool:
    """True if ``printable`` does not change the characters."""
    return _UNSAFE.search(text) is None


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {name: _masked(fact) for name, fact in value.items()}
    return [_masked(entry) for entry in value] if isinstance(value, (list, tuple)) else value


class Report(dict[str, Any]):
    """What a job found and did; ``text`` replaces the generic text form, ``error_lines`` go to stderr."""

    def __init__(
        self,
        job: str,
        status: str = "ok",
        *,
        exit_code: int | None = None,
        text: Sequence[str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(job=job, status=status, **facts)
        self.exit_code = EXIT_CODE_OF_STATUS[status] if exit_code is None else exit_code
        self.text = text
        self.error_lines: list[str] = []

    def to_json(self, *, ascii_only: bool = False) -> str:
        facts = {name: value if name in DATA else _masked(value) for name, value in self.items()}
        text = json.dumps(facts, ensure_ascii=ascii_only, default=_plain)
        return _UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)

    def to_text(self) -> str:
        if self.text is not None:
            return "\n".join(map(printable, self.text))
        facts = {name: value for name, value in self.items() if value or (value == 0 and value is not False)}
        width = max(map(len, facts))
        lines: list[str] = []
        for name, value in facts.items():
            shown = [printable(line) for line in _show(name, value)]
            lines.append(f"{name.replace('_', ' '):<{width}}  {shown[0]}")
            lines += [f"{'':<{width}}  {line}" for line in shown[1:]]
        return "\n".join(lines)

    def write(self, path: str) -> None:
        try:
            local_files.replace_bytes(str(Path(path).absolute()), (self.to_json() + "\n").encode())
        except OSError as error:
            raise WriteFailed(f"cannot be written: {error.strerror or error}", path=path) from error


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return without_secrets(str(value))


def _show(name: str, value: Any) -> Iterator[str]:
    if name == "bytes" and isinstance(value, int):
        yield f"{value:,} ({size_text(value)})"
    elif name == "seconds":
        yield f"{value:.1f}"
    elif isinstance(value, int) and not isinstance(value, bool) and not name.startswith(("log_", "from_", "to_")):
        yield f"{value:,}"
    elif isinstance(value, Mapping):
        yield from (f"{key}: {_line(entry)}" for key, entry in value.items())
    elif isinstance(value, (list, tuple)):
        blocks = any(isinstance(entry, Mapping) and len(entry) > LONGEST_LINE for entry in value)
        for entry in value if blocks else value[:LONGEST_LIST]:
            if blocks and isinstance(entry, Mapping):
                yield from _block(entry)
            else:
                yield _line(entry)
        if len(value) > LONGEST_LIST and not blocks:
            yield f"... and {len(value) - LONGEST_LIST:,} more (--json has them all)"
    else:
        yield str(value)


def _line(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(f"{name} {fact}" for name, fact in value.items() if fact is not None)


def _block(entry: Mapping[str, Any]) -> Iterator[str]:
    facts = {name: fact for name, fact in entry.items() if fact not in (None, "", [], {})}
    width = max(map(len, facts))
    for name, fact in facts.items():
        shown = str(fact)
        if isinstance(fact, Mapping):
            shown = ", ".join(f"{key}={text}" for key, text in fact.items())
        elif isinstance(fact, list):
            shown = " ".join(map(str, fact))
        yield f"{name.replace('_', ' '):<{width}}  {shown}"
    yield ""


def size_text(count: float) -> str:
    """A number of bytes as ``512 B`` or ``3.2 GB`` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


class Interrupted(KeyboardInterrupt):
    """The signal ``number`` asked the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_WHAT_STANDS = {
    "load": "the table has all of this load or nothing of it",
    "rebuild": "the output is all there or not at all",
    "publish": "the store has all of this publish or nothing of it",
    "restore": "the store has all of this restore or nothing of it",
}
"""State after a signal, for jobs where it may come after the commit step."""


def failure_report(job: str, error: BaseException) -> Report:
    """The report of a run that raised ``error``: status, exit code and error lines."""
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] not in PACKAGES:
        advice = "./spark-submit.sh installs what is needed; elsewhere conf/requirements names it"
        error = errors.DependencyMissing(f"{sys.executable} has no module {error.name}", advice=advice)
    if isinstance(error, KeyboardInterrupt):
        number = getattr(error, "number", int(signal.SIGINT))
        report = Report(job, "error", exit_code=128 + number, error=f"interrupted by {signal.Signals(number).name}")
        left = _WHAT_STANDS.get(job, "nothing was left behind")
        report.error_lines = [f"interrupted; {left}"]
    elif isinstance(error, StoreFormatError):
        status = "refused" if error.exit_code == errors.Refused.exit_code else "error"
        place: dict[str, Any] = {
            name: value for name, value in (("path", error.path), ("offset", error.offset)) if value is not None
        }
        report = Report(job, status, exit_code=error.exit_code, error=str(error), **place)
        report.error_lines = [f"error: {error}"] + ([f"  {error.advice}"] if error.advice else [])
    elif isinstance(error, OSError):
        report = Report(job, "error", exit_code=errors.WriteFailed.exit_code, error=str(error), path=error.filename)
        where = f" ({error.filename})" if error.filename else ""
        report.error_lines = [f"error: reading or writing failed: {error.strerror or error}{where}"]
    else:
        first_line = (str(error).strip().splitlines() or [""])[0]
        report = Report(job, "error", exit_code=70, error=f"{type(error).__name__}: {first_line}")
        report.error_lines = [
            f"error: a defect of this program: {type(error).__name__}: {first_line}{_place_of(error)}",
            f"  with Python {platform.python_version()}; run it again with --debug for the trace, and report it",
        ]
        if job == "demo":
            report.error_lines.append(
                "  its store is sound, so try another Python or Java: remove .venv, then name them in"
                " ROCKETMQ_STORE_SPARK_PYTHON and JAVA_HOME"
            )
    return report


def _place_of(error: BaseException) -> str:
    frames = [
        f" ({path.relative_to(_ROOT).as_posix()}, line {frame.lineno})"
        for frame in traceback.extract_tb(error.__traceback__)
        if (path := Path(frame.filename)).is_relative_to(_ROOT)
        and path.relative_to(_ROOT).parts[0] in PACKAGES
        and path.name != "spark_errors.py"
    ]
    return frames[-1] if frames else ""
