"""Reports, verdicts and metrics."""

from __future__ import annotations

import io
import json
import platform
import re
import shutil
import signal
import sys
import traceback
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support import golden
from support.golden import GoldenStore
from support.here import tasks_here
from support.patching import stand_in
from support.rebuilding import options_for
from support.store_to_start import configure

from jobs.cli import command_line
from jobs.contract import report as reports
from jobs.contract.options import JobOptions
from jobs.contract.report import (
    EXIT_CODE_OF_STATUS,
    Interrupted,
    Report,
    Reporter,
    failure_report,
    losses_text,
    printable,
    size_text,
    status_of,
)
from storeformat.errors import DependencyMissing, MissingInput, Refused, WriteFailed

# -------------------------------------------------------------------------------------------------------- report
HOSTILE = "x\x1b]0;PWN\x07\x1b[31my\nerror: fake\r\x7f\x9b2J\u2028\u2029\u202e\u2066\u200b\ufeff\U000e0041\udcff"
SECRET = "s3://KEY:SECRET@bucket/store?secret_key=SECRET&region=eu"


def obeyed(text: str) -> list[str]:
    """Returns what a terminal would obey or hide, by the Unicode categories; newlines between lines are ours."""
    return [sign for sign in text if unicodedata.category(sign) in {"Cc", "Zl", "Zp", "Cs"} or sign in HIDDEN]


HIDDEN = "\xad\u061c\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"


class TestPrintable:
    @given(st.text(min_size=1) | st.text(min_size=1, alphabet="ab:@/?=& " + HOSTILE + HIDDEN))
    @example(HOSTILE)
    def test_nothing_that_a_terminal_obeys_leaves_the_program(self, text: str) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said)
        reporter.note(text)
        reporter.warn(text)
        with reporter.progress(text, 0) as progress:
            progress.update(0, now=progress.begun + 100)
        shown = Report("query", "error", topic=text, names=[text], places={text: text}, rows=[{"topic": text}])
        lines = [*said.getvalue().split("\n"), *shown.to_text().split("\n")]
        assert len(lines) == 3 + 1 + 6
        assert [line for line in lines if obeyed(line)] == []

    @given(
        st.recursive(
            st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        )
    )
    @example({HOSTILE: [HOSTILE]})
    def test_json_holds_the_same_and_nothing_to_obey(self, value: object) -> None:
        for ascii_only in (False, True):
            text = Report("query", value=value).to_json(ascii_only=ascii_only)
            assert json.loads(text)["value"] == value or "://" in str(value)
            assert obeyed(text) == []

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            *((kept, kept) for kept in ("\u4e2d\u6587", "\u0627\u0644", "\u0939\u093f\u094d", "\U0001f980", "%R%g|b")),
            ("\x1b", "\\x1b"), ("\x9b", "\\x9b"), ("\u202e", "\\u202e"), ("\U000e0041", "\\U000e0041"),
        ],
    )  # fmt: skip
    def test_topics_of_any_script_stay_and_what_a_terminal_hides_is_as_in_python(self, text: str, shown: str) -> None:
        assert printable(f"a{text}b") == f"a{shown}b"

    def test_a_hostile_name_forges_no_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        report = failure_report("inspect", MissingInput("cannot be read", path=HOSTILE, advice=HOSTILE))
        assert command_line.deliver(report, JobOptions()) == 66
        lines = capsys.readouterr().err.splitlines()
        assert [line[:14] for line in lines] == ["error: cannot ", "  x\\x1b]0;PWN\\"]
        assert [line for line in lines if obeyed(line)] == []

    def test_no_form_of_a_report_shows_a_secret_but_data_stays(self, tmp_path: Path) -> None:
        said = io.StringIO()
        Reporter(stream=said).note(f"reads {SECRET}")
        report = Report("inspect", store=SECRET, notes=[SECRET], places={"a": [SECRET]}, path=Path(SECRET))
        report.write(str(tmp_path / "r.json"))
        forms = [said.getvalue(), report.to_json(), report.to_text(), (tmp_path / "r.json").read_text()]
        forms += failure_report("load", MissingInput("no", path=SECRET)).to_json()
        report.text = [SECRET]
        assert not [form for form in [*forms, report.to_text()] if "SECRET" in form]
        assert "region=eu" in forms[1]
        assert json.loads(Report("query", records=[{"body": SECRET}]).to_json())["records"] == [{"body": SECRET}]


class TestReport:
    def test_statuses_have_exit_codes(self) -> None:
        codes = [
            Report("j", status).exit_code
            for status in ("ok", "differences", "nothing_found", "damaged", "refused", "error")
        ]
        assert codes == [0, 1, 1, 1, 2, 70]
        assert Report("query", "ok", exit_code=1).exit_code == 1

    @pytest.mark.parametrize(
        ("name", "value", "lines"),
        [
            ("bytes", 1000, ["1,000 (1.0 kB)"]),
            ("bytes", "many", ["many"]),
            ("seconds", 12.34, ["12.3"]),
            ("rows", 1234, ["1,234"]),
            ("rows", 1234.5, ["1234.5"]),
            ("skipped", True, ["True"]),
            ("log_begin", 1234, ["1234"]),
            ("from_offset", 1234, ["1234"]),
            ("to_offset", 1234, ["1234"]),
            ("counts", {"a": 1234, "b": {"c": 1, "d": None, "e": 2}}, ["a: 1234", "b: c 1, e 2"]),
            ("names", ("a", 1), ["a", "1"]),
            ("names", [*"abcdefghij"], [*"abcdefghij"]),
            ("names", [*"abcdefghijk"], [*"abcdefghij", "... and 1 more (--json has them all)"]),
            ("names", ["a"] * 1510, [*["a"] * 10, "... and 1,500 more (--json has them all)"]),
            ("rows", [{str(one): one for one in range(10)}], ["0 0, 1 1, 2 2, 3 3, 4 4, 5 5, 6 6, 7 7, 8 8, 9 9"]),
            (
                "rows",
                [
                    "a",
                    {"long_name": 0, "b": None, "c": "", "d": [], "e": {}, "f": [1, 2], "g": {"h": 1, "i": None},
                     "k": False, "l": 1, "m": 2, "n": 3},
                ],
                ["a", "long name  0", "f          1 2", "g          h=1, i=None", "k          False", "l          1",
                 "m          2", "n          3", ""],
            ),
        ],
    )  # fmt: skip
    def test_how_a_fact_is_shown(self, name: str, value: object, lines: list[str]) -> None:
        shown = Report("j", **{name: value}).to_text().split("\n")
        indent = max(len(name), len("status")) + 2
        assert shown[:2] == [f"{'job':<{indent}}j", f"{'status':<{indent}}ok"]
        assert shown[2] == f"{name.replace('_', ' '):<{indent}}{lines[0]}"
        assert shown[3:] == [" " * indent + line for line in lines[1:]]

    def test_only_what_says_something_is_shown(self) -> None:
        report = Report("j", none=None, false=False, words="", rows=[], zero=0, fraction=0.0)
        assert report.to_text() == "job       j\nstatus    ok\nzero      0\nfraction  0.0"

    def test_a_report_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        path = str(tmp_path / "file" / "r.json")
        with pytest.raises(WriteFailed) as caught:
            Report("j").write(path)
        assert str(caught.value) in {f"cannot be written: {why} ({path})" for why in ("File exists", "Not a directory")}

    def test_a_report_in_a_file_is_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        report = Report("j", topic="\u4e2d\udcff")
        report.write("r.json")
        assert (tmp_path / "r.json").read_text(
            encoding="utf-8"
        ) == '{"job": "j", "status": "ok", "topic": "\u4e2d\\udcff"}\n'
        assert report.to_json(ascii_only=True) == '{"job": "j", "status": "ok", "topic": "\\u4e2d\\udcff"}'

    def test_text_shows_each_message_as_a_block(self) -> None:
        text = Report("query", messages=[{f"fact_{number}": number for number in range(12)}] * 30).to_text()
        assert text.count("fact 11  11") == 30

    def test_json_takes_what_numpy_and_python_have(self) -> None:
        import numpy as np

        report = Report("j", n=np.int64(3), s={"b", "a"}, b=b"\xff", t="日本")
        assert json.loads(report.to_json()) == {
            "job": "j", "status": "ok", "n": 3, "s": ["a", "b"], "b": "\\xff", "t": "日本",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_900, "999.9 kB"), (10**6, "1.0 MB"), (10**9, "1.0 GB"),
            (10**12, "1.0 TB"), (10**13, "10.0 TB"), (10**15, "1000.0 TB"), (0.4, "0 B"),
        ],
    )  # fmt: skip
    def test_sizes(self, count: int, text: str) -> None:
        assert size_text(count) == text


class TestFailures:
    """What a run says that ended with an exception: its facts, its exit code, and the lines on stderr."""

    @pytest.mark.parametrize(
        ("job", "left"),
        [
            ("load", "the table has all of this load or nothing of it"),
            ("rebuild", "the output is all there or not at all"),
            ("publish", "the store has all of this publish or nothing of it"),
            ("restore", "the store has all of this restore or nothing of it"),
            ("verify", "nothing was left behind"),
        ],
    )
    def test_an_interrupt_says_what_stands(self, job: str, left: str) -> None:
        for error, number, name in (
            (KeyboardInterrupt(), 2, "SIGINT"),
            (Interrupted(signal.SIGTERM), 15, "SIGTERM"),
            (Interrupted(signal.SIGHUP), 1, "SIGHUP"),
        ):
            report = failure_report(job, error)
            assert report == {"job": job, "status": "error", "error": f"interrupted by {name}"}
            assert (report.exit_code, report.error_lines) == (128 + number, [f"interrupted; {left}"])

    def test_errors_of_this_program(self) -> None:
        refused = failure_report("load", Refused("no", path="/p", offset=0, advice="do"))
        assert refused == {"job": "load", "status": "refused", "error": "no (/p, offset 0)", "path": "/p", "offset": 0}
        assert (refused.exit_code, refused.error_lines) == (2, ["error: no (/p, offset 0)", "  do"])
        missing = failure_report("load", MissingInput("no"))
        assert missing == {"job": "load", "status": "error", "error": "no"}
        assert (missing.exit_code, missing.error_lines) == (66, ["error: no"])

    def test_errors_of_the_file_system(self) -> None:
        for error, path, said in (
            (OSError(28, "No space left on device", "/f"), "/f", "No space left on device (/f)"),
            (OSError(5, "Input/output error"), None, "Input/output error"),
            (OSError("odd"), None, "odd"),
        ):
            report = failure_report("load", error)
            assert report == {"job": "load", "status": "error", "error": str(error), "path": path}
            assert report.exit_code == 74
            assert report.error_lines == [f"error: reading or writing failed: {said}"]

    def test_defects(self) -> None:
        for error, said in (
            (ValueError(" a\nb"), "ValueError: a"),
            (KeyError(), "KeyError: "),
            (MemoryError("\n"), "MemoryError: "),
        ):
            report = failure_report("load", error)
            assert report == {"job": "load", "status": "error", "error": said}
            version = platform.python_version()
            assert (report.exit_code, report.error_lines) == (
                70,
                [
                    f"error: a defect of this program: {said}",
                    f"  with Python {version}; run it again with --debug for the trace, and report it",
                ],
            )
        assert failure_report("demo", ValueError("a")).error_lines[2] == (
            "  its store is sound, so try another Python or Java: remove .venv, then name them in"
            " ROCKETMQ_STORE_SPARK_PYTHON and JAVA_HOME"
        )

    def test_a_package_that_is_missing_is_no_defect(self) -> None:
        report = failure_report("load", ModuleNotFoundError("No module named 'x'", name="deltalake.writer"))
        assert (report.exit_code, report["error"]) == (69, f"{sys.executable} has no module deltalake.writer")
        assert failure_report("load", ModuleNotFoundError("No module named 'x'", name="jobs.x")).exit_code == 70

    def test_the_place_is_the_last_of_the_programs_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not in a test, not in an installed package, and not where an error of Spark is only passed on."""
        monkeypatch.setattr("jobs.contract.report._ROOT", Path("/r"))
        ours = [("/r/udfs/a.py", 3), ("/r/storeformat/b/c.py", 5), ("/r/jobs/d.py", 7)]
        others = [("/r/jobs/spark/spark_errors.py", 9), ("/r/tests/t.py", 11), ("/usr/lib/jobs/x.py", 13)]
        for shown, place in (
            (others, ""),
            ([*ours, *others], " (jobs/d.py, line 7)"),
            ([*others, ours[0]], " (udfs/a.py, line 3)"),
            ([others[0], *ours[:2], others[2]], " (storeformat/b/c.py, line 5)"),
        ):
            frames = [traceback.FrameSummary(path, line, "f", lookup_line=False) for path, line in shown]
            monkeypatch.setattr(traceback, "extract_tb", lambda _, frames=frames: frames)
            assert failure_report("load", ValueError("x")).error_lines[0].endswith(f"ValueError: x{place}")

    def test_the_place_of_a_defect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jobs.contract.report.json", None)
        with pytest.raises(AttributeError) as caught:
            Report("demo").to_json()
        said = r"error: a defect of this program: AttributeError: .*'dumps' \(jobs/contract/report.py, line \d+\)"
        assert re.fullmatch(said, failure_report("demo", caught.value).error_lines[0])


def test_no_name_makes_a_line_of_its_own() -> None:
    report = Report("report", rows=1)
    report.text = ["a\nb\x1b", "c"]
    assert report.to_text() == "a\\x0ab\\x1b\nc"


# ------------------------------------------------------------------------------------------------------- verdict
MISSING = ("nothing", "consumequeue", "index", "checkpoint", "config", "last queue", "last segment", "log's end")
_NEWEST = golden.newest_of_each_scenario()
STORES = [
    store if store in _NEWEST and store.scenario == "base" else pytest.param(store, marks=pytest.mark.slow)
    for store in golden.stores()
]


@pytest.mark.parametrize(
    ("facts", "more", "status"),
    [
        ({}, {}, "ok"),
        ({"answer": "safe to start, but read this first", "found": 3}, {}, "ok"),
        ({"found": 0}, {}, "nothing_found"),
        ({"found": 3}, {"unknown": True}, "unknown"),
        ({"answer": "not safe to start"}, {}, "unsafe"),
        ({"answer": "not known: why"}, {}, "unsafe"),
        ({"lost_messages_at_least": 1, "answer": "not safe to start"}, {}, "damaged"),
        ({"damaged_ranges": [{"begin": 1}]}, {}, "damaged"),
        ({}, {"damaged": True}, "damaged"),
        ({"counts": {"missing_unit": 1}, "damaged_ranges": [1]}, {}, "differences"),
        ({"lost_messages": 3}, {"differs": True}, "differences"),
    ],
)
def test_the_status_of_a_report(facts: dict[str, Any], more: dict[str, bool], status: str) -> None:
    assert status_of(facts, **more) == status


def take_away(root: Path, what: str) -> None:
    path = root / what
    if what == "last queue":
        path = max((root / "consumequeue").glob("*/*"))
    if what in ("last segment", "log's end"):
        path = max((root / "commitlog").iterdir())
    if what == "log's end":
        content = bytearray(path.read_bytes())
        content[len(content.rstrip(b"\0")) - 100 :] = bytes(len(content) - len(content.rstrip(b"\0")) + 100)
        path.write_bytes(content)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def consistent(report: dict[str, Any], code: int) -> bool:
    """Whether status, answer, exit code and what was found say the same."""
    against = [report.get(name) for name in ("counts", "damaged_ranges", "lost_messages_at_least", "error")]
    safe = report.get("answer", "safe").startswith("safe")
    unsafe = any(reason["unsafe"] for reason in report.get("reasons", ()))
    unknown = report["job"] == "query" and any(row["lag"] is None for row in report.get("queues", ()))
    is_ok = not any(against) and safe and not unknown and report.get("found") != 0
    if report["status"] not in ("error", "refused") and code != EXIT_CODE_OF_STATUS[report["status"]]:
        return False
    return safe != unsafe and (code == 0) == (report["status"] == "ok") == is_ok


@pytest.mark.parametrize("store", STORES, ids=str)
def test_no_report_holds_two_answers(store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in MISSING:
        root = golden.unpack(store, tmp_path / what)
        configure(root)
        take_away(root, what)
        given = options_for(Path(), Path(), store.settings).settings
        sizes = [part for name, value in given for part in ("--set", f"{name}={value}")]
        for words in (
            ["verify", *sizes],
            ["preflight", *sizes],
            ["inspect", *sizes],
            ["query", "lag", *sizes],
            ["rebuild", "--output", str(tmp_path / "out"), "--on-damage", "salvage", *sizes],
            ["publish", "--from", str(tmp_path / "out"), "--after-crash"],
            ["restore"],
        ):
            with tasks_here():
                code = command_line.main([*words, "--store", str(root), "--json", "--quiet"])
            report = json.loads(capsys.readouterr().out)
            assert consistent(report, code), (what, words, report)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


# ------------------------------------------------------------------------------------------------------- metrics


@pytest.mark.parametrize("job", ["restore", "verify"])
def test_a_failure_is_told_in_place_of_an_earlier_success(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "job.prom"
    told.write_text("rocketmq_store_job_ok 1\n")
    with tasks_here():
        code = command_line.main([job, "--store", str(tmp_path / "absent"), "--metrics", str(told)])
    assert code == 66, capsys.readouterr().err
    families = text_string_to_metric_families(told.read_text())
    found = {sample.name: sample.value for family in families for sample in family.samples}
    assert (found[f"rocketmq_store_{job}_ok"], found[f"rocketmq_store_{job}_exit_code"]) == (0, 66)


def test_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasons and differences by what they are of."""
    stand_in(monkeypatch, reports, "time", time=lambda: 1_700_000_000.5)
    reasons = [{"rule": "r", "unsafe": True}, {"rule": "r", "unsafe": True}, {"rule": "s", "unsafe": False}]
    facts = {"some_rows": 5, "flag": True, "answer": "not safe to start", "reasons": reasons, "counts": {"gone": 7}}
    report = Report("verify", "differences", seconds=2, brokers=["c/b"], **facts)
    reports.write_metrics(str(tmp_path / "m"), report, "s3://K:S@b/s")
    store = 'store="s3://***@b/s"'
    expected = {
        ("duration_seconds", "How long it took"): {store: 2.0},
        ("some_rows", "The report's some rows"): {store: 5.0},
        ("safe", "1 where the broker may be started, 0 where not"): {store: 0.0},
        ("ok", "1 where the status is ok, 0 where not"): {store: 0.0},
        ("exit_code", "What the process ended with"): {store: 1.0},
        ("time_seconds", "When this was found out, in seconds since 1970"): {store: 1_700_000_000.5},
        ("reasons", "What was found"): {
            f'rule="r",severity="unsafe",{store}': 2.0,
            f'rule="s",severity="note",{store}': 1.0,
        },
        ("differences", "What was found"): {f'cause="gone",{store}': 7.0},
    }
    found: dict[tuple[str, str], dict[str, float]] = {}
    for family in text_string_to_metric_families((tmp_path / "m").read_text()):
        name = family.name.removeprefix("rocketmq_store_verify_")
        for sample in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            found.setdefault((name, family.documentation), {})[labels] = sample.value
    assert found == expected


@pytest.mark.parametrize(
    ("store", "label"),
    [("", ""), ("here", f"{Path.cwd()}/here"), ("/t\udcff\n", "/t?\\n")],
    ids=["none", "relative", "odd"],
)
def test_the_label_of_a_store(store: str, label: str, tmp_path: Path) -> None:
    reports.write_metrics(str(tmp_path / "m"), Report("demo"), store)
    assert f'rocketmq_store_demo_ok{{store="{label}"}} 1.0' in (tmp_path / "m").read_text().splitlines()


def test_metrics_need_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(DependencyMissing) as caught:
        reports.write_metrics(str(tmp_path / "m"), Report("demo"), "")
    assert str(caught.value) == "--metrics needs the package prometheus-client"
    assert caught.value.advice == "./spark-submit.sh --setup installs it"


def test_text_begins_with_the_verdict_and_ends_with_the_next_command() -> None:
    row = {"rule": "r", "what": "w", "cure": "c", "unsafe": True}
    head = {"verdict": "damaged", "figures": "6 messages", "reasons": [row], "next": "go"}
    report = Report("verify", "damaged", **head, messages=6, losses=[{"topic": "T"}], stages={"scan": 1}, notes=["n"])
    first = "damaged\n6 messages\nr: w\n    c\n"
    assert report.to_text() == f"{first}losses  topic T\nnotes   n\nnext: go"
    shown = "job       verify\nstatus    damaged\nmessages  6\nlosses    topic T\nstages    scan: 1\nnotes     n\n"
    assert report.to_text(verbose=True) == f"{first}{shown}next: go"


@pytest.mark.parametrize(
    ("lost", "least", "queues", "text"),
    [
        (0, 0, [], ""),
        (1, 1, [("A", 0)], "1 message is lost in 1 queue of 1 topic"),
        (6, 6, [("A", 0), ("A", 1), ("B", 0)], "6 messages are lost in 3 queues of 2 topics"),
        (0, 1200, [], "at least 1,200 messages are lost"),
    ],
)
def test_losses_in_words(lost: int, least: int, queues: list[tuple[str, int]], text: str) -> None:
    rows = [{"topic": topic, "queue_id": queue_id} for topic, queue_id in queues]
    assert losses_text({"lost_messages": lost, "lost_messages_at_least": least, "losses": rows}) == text
