"""A run in progress (notes and progress on stderr), and its result: a report as text and JSON, or error lines."""

from __future__ import annotations

import json
import platform
import re
import shlex
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from jobs.contract.options import JobOptions
from storeformat import errors
from storeformat.errors import DependencyMissing, StoreFormatError, WriteFailed
from storeformat.storage import local_files, locations
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

EXIT_CODES = {
    "0": "done, or safe to start",
    "1": "differences, damage or loss, not safe to start, an unknown answer, nothing found",
    "2": "refused",
    "64": "wrong command line",
    "65": "not a proper store",
    "66": "cannot be read",
    "69": "something is missing",
    "70": "a defect of this program",
    "74": "reading or writing failed",
    "129, 130, 143": "interrupted by SIGHUP, Ctrl-C, SIGTERM",
}
"""Their meaning: every help shows it, README has the same table."""

EXIT_CODE_OF_STATUS = {
    "ok": 0, "differences": 1, "damaged": 1, "unsafe": 1, "unknown": 1, "nothing_found": 1, "refused": 2, "error": 70,
}  # fmt: skip
_LOSSES = ("damaged_ranges", "kept_records", "lost_messages", "lost_messages_at_least")
_HEAD = ("verdict", "figures", "reasons", "next")


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
    """What a job found and did: ``verdict`` and ``figures`` are the first lines, ``next`` is the command in the last;
    ``text`` replaces the lines between, ``error_lines`` go to stderr.
    """

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

    def to_text(self, *, verbose: bool = False) -> str:
        """The text form: notes and lists, or ``verbose`` all facts."""
        lines = [self[name] for name in _HEAD[:2] if self.get(name)] + reason_lines(self.get("reasons", ()))
        facts = {name: value for name, value in self.items() if value or (value == 0 and value is not False)}
        facts = {name: value for name, value in facts.items() if name not in _HEAD}
        if lines and not verbose:
            facts = {name: value for name, value in facts.items() if name == "notes" or _is_table(value)}
        if self.text is not None:
            lines, facts = list(self.text), facts if verbose else {}
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            first, *others = _show(name, value)
            lines.append(f"{name.replace('_', ' '):<{width}}  {first}")
            lines += [f"{'':<{width}}  {line}" for line in others]
        if self.get("next"):
            lines.append(f"next: {self['next']}")
        return "\n".join(map(printable, lines))

    def write(self, path: str) -> None:
        try:
            local_files.replace_bytes(str(Path(path).absolute()), (self.to_json() + "\n").encode())
        except OSError as error:
            raise WriteFailed(f"cannot be written: {error.strerror or error}", path=path) from error


def _is_table(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and isinstance(value[0], Mapping)


def reason_lines(reasons: Sequence[Mapping[str, Any]]) -> list[str]:
    """Reasons of ``preflight`` for a person, each with its cure."""
    lines = []
    for reason in reasons:
        lines.append(f"{'' if reason['unsafe'] else 'note: '}{reason['rule']}: {reason['what']}")
        lines += [f"    {reason['cure']}"] if reason["cure"] else []
    return lines


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
        text = str(fact)
        if isinstance(fact, Mapping):
            text = ", ".join(f"{key}={text}" for key, text in fact.items())
        elif isinstance(fact, list):
            text = " ".join(map(str, fact))
        yield f"{name.replace('_', ' '):<{width}}  {text}"
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
    "recover": "call it again, and it goes on",
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


def status_of(facts: Mapping[str, Any], *, differs: bool = False, damaged: bool = False, unknown: bool = False) -> str:
    """Status of a finished job; the flags add what the facts do not say."""
    if differs or facts.get("counts"):
        return "differences"
    if damaged or any(facts.get(name) for name in _LOSSES):
        return "damaged"
    if not str(facts.get("answer", "safe")).startswith("safe"):
        return "unsafe"
    return "unknown" if unknown else "ok" if facts.get("found", True) else "nothing_found"


def losses_text(facts: Mapping[str, Any]) -> str:
    """The lost messages of a log that was read: ``6 messages are lost in 6 queues of 3 topics``; empty for none."""
    if not (least := facts.get("lost_messages_at_least")):
        return ""
    rows, at_least = facts["losses"], "" if facts["lost_messages"] == least else "at least "
    topics, queues = {row["topic"] for row in rows}, {(row["topic"], row["queue_id"]) for row in rows}
    where = f" in {counted(len(queues), 'queue')} of {counted(len(topics), 'topic')}" if rows else ""
    return f"{at_least}{counted(least, 'message')} {'is' if least == 1 else 'are'} lost{where}"


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def program() -> str:
    """The script as it can be called from here."""
    return "./spark-submit.sh" if Path.cwd() == _ROOT else str(_ROOT / "spark-submit.sh")


def job_command(job: str, options: Any, *words: str) -> str:
    """Command line of a job on the store of other options, with what they say of its broker, and absolute paths."""
    given = [] if options.broker_conf is None else ["--broker-conf", locations.absolute(options.broker_conf)]
    if job not in ("publish", "restore"):
        given += [word for pair in getattr(options, "settings", ()) for word in ("--set", "=".join(pair))]
        version = getattr(options, "broker_version", None)
        given += [] if version is None else ["--broker-version", version]
    return command(program(), job, "--store", locations.absolute(options.store), *given, *words)


def step_after(look: Mapping[str, Any], options: Any) -> str | None:
    """What to do after an answer of ``preflight``; None where a person must decide."""
    if str(look["answer"]).startswith("safe"):
        return "start the broker"
    mends = any(reason["recover"] not in ("", "decide") for reason in look["reasons"])
    return job_command("recover", options) if mends else None


def command(*words: str) -> str:
    """Shell line for these words, or a remark if a word is not printable."""
    line = shlex.join(words)
    if all(map(is_printable, words)):
        return line
    return f"by hand, for a name has characters that a terminal hides: {printable(' '.join(words))}"


def quoted(name: str) -> str:
    """A name as one shell word, for text that is not a command."""
    return shlex.quote(printable(name))


def set_aside(directory: str, paths: Sequence[str]) -> str:
    """Command that moves paths into a directory without overwriting."""
    return command("mv", "--backup=numbered", "-t", directory, "--", *paths)


def write_metrics(path: str, report: Report, store: str) -> None:
    """Write the report as Prometheus gauges, one for each number, cause and rule. Failed runs are written too."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415  (with --metrics only)
    except ImportError as error:
        raise DependencyMissing(
            "--metrics needs the package prometheus-client", advice="./spark-submit.sh --setup installs it"
        ) from error
    of_store = {"store": locations.absolute(store) if store else ""}
    registry, gauges = CollectorRegistry(), dict[str, Any]()
    for name, text, own, value in _samples({**report, "exit_code": report.exit_code}, time.time()):
        labels = {**of_store, **own}
        if name not in gauges:
            gauges[name] = Gauge(f"rocketmq_store_{report['job']}_{name}", text, list(labels), registry=registry)
        # A path may hold bytes that are not UTF-8.
        texts = {
            key: locations.without_secrets(label).encode(errors="replace").decode() for key, label in labels.items()
        }
        gauges[name].labels(**texts).set(value)
    try:
        local_files.replace_bytes(locations.local_path(path), generate_latest(registry))
    except OSError as error:
        raise WriteFailed(f"cannot be written: {error.strerror or error}", path=path) from error


def _samples(report: Mapping[str, Any], now: float) -> Iterator[tuple[str, str, dict[str, str], float]]:
    for name, value in report.items():
        if type(value) in (int, float) and name not in ("seconds", "exit_code"):
            yield name, f"The report's {name.replace('_', ' ')}", {}, value
    if "seconds" in report:
        yield "duration_seconds", "How long it took", {}, report["seconds"]
    if (answer := str(report.get("answer", ""))).startswith(("safe", "not safe")):
        yield "safe", "1 where the broker may be started, 0 where not", {}, answer.startswith("safe")
    yield "ok", "1 where the status is ok, 0 where not", {}, report["status"] == "ok"
    yield "exit_code", "What the process ended with", {}, report["exit_code"]
    yield "time_seconds", "When this was found out, in seconds since 1970", {}, now
    reasons = Counter((reason["rule"], reason["unsafe"]) for reason in report.get("reasons", ()))
    for (rule, unsafe), count in reasons.items():
        yield "reasons", "What was found", {"rule": rule, "severity": "unsafe" if unsafe else "note"}, count
    for cause, count in (report.get("counts") or {}).items():
        yield "differences", "What was found", {"cause": cause}, count


class Reporter:
    """Clock, notes, progress and report of one run, thread-safe; ``interval`` is seconds between lines."""

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, interval: float = 10.0, dated: bool = False
    ) -> None:
        self.begun = time.monotonic()
        self.notes: list[str] = []
        self.quiet = quiet
        self.dated = dated
        self.stream = sys.stderr if stream is None else stream
        self.interval = interval
        self.terminal = self.stream.isatty()
        self._drawn = 0
        self._lock = threading.Lock()

    @classmethod
    def for_options(cls, options: JobOptions) -> Reporter:
        return cls(quiet=options.quiet, dated=True)

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.begun, 3)

    def say(self, text: str) -> None:
        if not self.quiet:
            self._line(text)

    def note(self, *notes: str) -> None:
        """Print notes now and add them to the report."""
        for text in notes:
            self.say(text)
        self.notes += notes

    def tell(self, *lines: str) -> None:
        """Print lines even if quiet; they are not added to the notes."""
        for line in lines:
            self._line(line.strip())

    def warn(self, text: str) -> None:
        """Print a warning even if quiet, and add it to the report."""
        self._line(f"warning: {text}")
        self.notes.append(text)

    def report(
        self,
        job: str,
        *,
        notes: Sequence[str] = (),
        text: Sequence[str] | None = None,
        differs: bool = False,
        damaged: bool = False,
        unknown: bool = False,
        **facts: Any,
    ) -> Report:
        status = status_of(facts, differs=differs, damaged=damaged, unknown=unknown)
        return Report(job, status, text=text, **facts, seconds=self.seconds, notes=[*self.notes, *notes])

    def _line(self, text: str) -> None:
        with self._lock:
            self._clear()
            date = time.strftime("%Y-%m-%d %H:%M:%S ") if self.dated and not self.terminal else ""
            print(date + printable(text), file=self.stream, flush=True)

    def _clear(self) -> None:
        if self._drawn:
            print("\r" + " " * self._drawn + "\r", end="", file=self.stream)
            self._drawn = 0

    def _draw(self, text: str) -> None:
        line = printable(text)
        with self._lock:
            self._clear()
            print(line, end="", file=self.stream, flush=True)
            self._drawn = len(line)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Progress]:
        progress = Progress(self, what, total)
        try:
            yield progress
        finally:
            with self._lock:
                self._clear()


class Progress:
    """Progress of one piece of work, created by ``Reporter.progress``."""

    def __init__(self, reporter: Reporter, what: str, total: int) -> None:
        self.reporter = reporter
        self.what = what
        self.total = total
        self.begun = time.monotonic()
        self._next = self.begun + (0.5 if reporter.terminal else reporter.interval)

    def update(self, done: int, *, now: float | None = None) -> None:
        """Record ``done`` bytes; prints only when a line is due, so call it as often as convenient."""
        now = time.monotonic() if now is None else now
        if self.reporter.quiet or now < self._next:
            return
        if self.reporter.terminal:
            self._next = now + 0.2
            self.reporter._draw(self.text(done, now))
        else:
            self._next = now + self.reporter.interval
            self.reporter._line(self.text(done, now))

    def text(self, done: int, now: float) -> str:
        seconds = max(now - self.begun, 1e-9)
        share = done / self.total if self.total else 1.0
        left = "" if done <= 0 or share >= 1 else f", about {duration_text(seconds * (1 - share) / share)} left"
        amounts = f"{size_text(done)} of {size_text(self.total)}, {size_text(done / seconds)}/s"
        return f"{self.what}: {share:.0%}, {amounts}{left}"


def duration_text(seconds: float) -> str:
    """A duration as ``45 s``, ``3 min`` or ``2.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
