"""Several brokers in one start: each as if it were alone, and what ends one stops no other."""

from __future__ import annotations

import io
import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.here import tasks_here
from support.loading import load_here
from support.store_builder import LogBuilder

from jobs.cli import command_line, fleet
from jobs.cli.fleet import answer, outcome
from jobs.cli.fleet_stores import Member
from jobs.contract.options import InspectOptions, LoadOptions, VerifyOptions
from jobs.contract.report import Interrupted, Report
from jobs.contract.reporter import Reporter
from jobs.query import inspection
from jobs.spark import session
from jobs.spark.execution import BROUGHT, Execution
from jobs.table import load
from jobs.verify import verify
from storeformat.errors import MissingInput

BROKERS = ("a", "b", "damaged", "missing")
TOPICS = 3
"""Each a queue file that a store lacks, beside index and checkpoint."""


def write_store(root: Path, messages: int, *, damaged: bool = False) -> None:
    log = LogBuilder(1 << 16)
    for number in range(messages):
        log.message(topic=f"T{number % TOPICS}", body=b"x" * 50, keys=f"k{number}", uniq_key=f"u{number}")
    log.write(root)
    if damaged:
        segment = next((root / "commitlog").iterdir())
        data = bytearray(segment.read_bytes())
        data[100:110] = b"\xff" * 10  # in the first body
        segment.write_bytes(data)


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    """Returns the snapshots of four brokers: two sound ones, a damaged log, no store at all."""
    for number, name in enumerate(BROKERS[:3]):
        write_store(tmp_path / "snap" / name / "store", 100 + number, damaged=name == "damaged")
    (tmp_path / "snap" / "missing").mkdir()
    return tmp_path / "snap"


@pytest.fixture(autouse=True)
def _in_this_process() -> Iterator[None]:
    """Tasks run here, in the thread of their broker."""
    with tasks_here():
        yield


def listed(snapshots: Path) -> str:
    """A file that names the store in each directory."""
    file = snapshots.parent / "stores.csv"
    file.write_text("".join(f"{one}/store,,{one.name}\n" for one in sorted(snapshots.iterdir())))
    return str(file)


def of_each(report: Report, *names: str) -> dict[str, tuple[Any, ...]]:
    return {entry["broker"]: tuple(entry.get(name) for name in names) for entry in report["brokers"]}


CHANGING = ("seconds", "exit_code", "cluster", "broker", "job", "version")


def same(entry: dict[str, Any], alone: Report) -> bool:
    return {name: value for name, value in entry.items() if name not in CHANGING} == {
        name: value for name, value in alone.items() if name not in CHANGING
    }


class TestLoad:
    def options(self, snapshots: Path, **more: Any) -> LoadOptions:
        table = str(snapshots.parent / "t")
        return LoadOptions(store="", stores=listed(snapshots), table=table, cluster="c", broker="", **more)

    def run(self, options: LoadOptions) -> Report:
        return fleet.run("load", load.run, options, Reporter(quiet=True))

    def test_each_broker_is_loaded_once(self, snapshots: Path) -> None:
        options = self.options(snapshots)
        first, again = self.run(options), self.run(options)
        assert of_each(first, "status", "exit_code", "rows") == {
            "a": ("ok", 0, 100), "b": ("ok", 0, 101), "damaged": ("refused", 2, None), "missing": ("error", 66, None),
        }  # fmt: skip
        assert (first["rows"], first.exit_code, first["status"]) == (201, 66, "error")
        assert first["statuses"] == {"ok": 2, "refused": 1, "error": 1}
        assert of_each(again, "rows", "skipped") == {
            "a": (0, True), "b": (0, True), "damaged": (None, None), "missing": (None, None),
        }  # fmt: skip
        rows = deltalake.DeltaTable(options.table).to_pyarrow_table(columns=["broker", "commit_log_offset"])
        assert len(rows) == len(set(zip(*rows.to_pydict().values(), strict=True))) == 201

    def test_an_entry_is_the_report_of_a_load_alone(self, snapshots: Path) -> None:
        report = self.run(self.options(snapshots, on_damage="salvage"))
        for entry in report["brokers"][:3]:
            alone = load_here(Path(entry["store"]), snapshots / "alone", broker=entry["broker"], on_damage="salvage")
            assert same({**entry, "table": alone["table"]}, alone)
        assert of_each(report, "status", "exit_code")["damaged"] == ("damaged", 1)

    def test_of_many_that_make_the_table_at_once_all_pass(self, tmp_path: Path) -> None:
        for number in range(12):
            write_store(tmp_path / "snap" / f"broker-{number}" / "store", 20 + number)
        report = self.run(self.options(tmp_path / "snap"))
        assert (report.exit_code, report["rows"]) == (0, sum(range(20, 32))), report.to_text()


@pytest.mark.parametrize("job", [verify.run, inspection.run])
def test_an_entry_is_the_report_of_a_job_alone(snapshots: Path, job: Callable[..., Report]) -> None:
    kind: type[Any] = VerifyOptions if job is verify.run else InspectOptions
    options = kind(store="", stores=listed(snapshots), on_damage="salvage")
    name = "verify" if kind is VerifyOptions else "inspect"
    report = fleet.run(name, job, options, Reporter(quiet=True))
    for entry in report["brokers"][:3]:
        alone = job(replace(options, store=entry["store"], stores=None), Reporter(quiet=True))
        assert same(entry, alone)
        assert entry["exit_code"] == alone.exit_code
    assert [entry["exit_code"] for entry in report["brokers"]][2:] == [1, 66]
    assert report.exit_code == 66


class TestWhatIsSaid:
    @pytest.fixture
    def line(self, snapshots: Path) -> list[str]:
        return ["verify", "--stores", listed(snapshots), "--broker-version", "5.3"]

    def test_a_line_each(self, line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
        assert command_line.main(line) == 66
        said = capfd.readouterr()
        head, *lines = said.out.splitlines()
        assert head == "verify: 4 brokers, 2 differences, 1 refused, 1 error"
        assert [text.split()[0] for text in lines] == list(BROKERS)
        assert "100 messages" in lines[0]
        assert f"{TOPICS + 2} missing_file" in lines[0]
        assert "there is no such store" in lines[3]
        assert "missing: error: there is no such store" in said.err
        assert "4 of 4: " in said.err

    def test_json_and_metrics(self, line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "verify.prom"
        assert command_line.main([*line, "--json", "--quiet", "--metrics", str(file)]) == 66
        said = capsys.readouterr()
        report = json.loads(said.out)
        assert [(entry["broker"], entry["exit_code"]) for entry in report["brokers"]] == [
            ("a", 1), ("b", 1), ("damaged", 2), ("missing", 66),
        ]  # fmt: skip
        told = {
            (sample.name.removeprefix("rocketmq_store_verify_"), sample.labels["broker"], sample.labels.get("cause")): (
                sample.value
            )
            for family in text_string_to_metric_families(file.read_text())
            for sample in family.samples
        }
        assert told["exit_code", "missing", None] == 66
        assert told["messages", "b", None] == 101
        assert told["differences", "a", "missing_file"] == TOPICS + 2


def test_jobs_run_side_by_side(snapshots: Path) -> None:
    together = threading.Barrier(len(BROKERS), timeout=120)

    def job(options: VerifyOptions, reporter: Reporter, execution: Execution) -> Report:
        together.wait()
        if "missing" in options.store:
            raise MissingInput("gone")
        return reporter.report("verify")

    said = io.StringIO()
    options = VerifyOptions(store="", stores=listed(snapshots))
    report = fleet.run("verify", job, options, Reporter(stream=said))
    assert (report.exit_code, report["statuses"]) == (66, {"ok": 3, "error": 1})
    assert "missing: error: gone\n" in said.getvalue()


def test_a_signal_ends_all_threads(snapshots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Barrier(2, timeout=120), []

    def job(options: VerifyOptions, reporter: Reporter, execution: Execution) -> Report:
        begun.wait()
        while session._shared is not None:  # as if tasks of Spark ran
            threading.Event().wait(0.01)
        ended.append(options.store)
        raise ConnectionError("Spark has gone")

    def interrupted(*unused: Any, **more: Any) -> Any:
        begun.wait()
        raise Interrupted(15)

    monkeypatch.setattr(fleet, "THREADS", 1)
    monkeypatch.setattr(fleet, "wait", interrupted)
    said = io.StringIO()
    with pytest.raises(Interrupted):
        fleet.run("verify", job, VerifyOptions(store="", stores=listed(snapshots)), Reporter(stream=said))
    assert ended == [f"{snapshots}/a/store"]
    assert said.getvalue() == ""


class TestOneBroker:
    """What ends the job of one broker is its own."""

    def one(self, error: BaseException, *, debug: bool = False, ended: bool = False) -> tuple[Report, list[str]]:
        def job(options: VerifyOptions, reporter: Reporter, execution: Execution) -> Report:
            raise error

        over = threading.Event()
        if ended:
            over.set()
        return self.said_by(job, over, debug=debug)

    def said_by(self, job: Any, over: threading.Event, *, debug: bool = False) -> tuple[Report, list[str]]:
        said, member = io.StringIO(), Member(VerifyOptions(store="/s", debug=debug), None, "b0")
        report = fleet.one("verify", job, member, Reporter(stream=said), BROUGHT, over)
        return report, said.getvalue().splitlines()

    def test_an_error_is_said_with_its_advice(self) -> None:
        report, said = self.one(MissingInput("gone", path="/s", advice="look elsewhere"))
        assert (report["job"], report["status"], report.exit_code) == ("verify", "error", 66)
        assert said == ["b0: error: gone (/s)", "b0: look elsewhere"]

    def test_debug_shows_where_it_came_from(self) -> None:
        _, said = self.one(MissingInput("gone"), debug=True)
        assert said[0] == "b0: Traceback (most recent call last):"
        assert said[-2:] == ["b0: storeformat.errors.MissingInput: gone", "b0: error: gone"]

    def test_an_interruption_ends_the_run(self) -> None:
        with pytest.raises(Interrupted):
            self.one(Interrupted(signal.SIGTERM))

    def test_a_run_that_has_ended_begins_no_job(self) -> None:
        report, said = self.one(AssertionError("must not run"), ended=True)
        assert (report["job"], report.exit_code, said) == ("verify", 130, [])

    def test_what_a_run_breaks_off_is_not_said(self) -> None:
        over = threading.Event()

        def job(options: VerifyOptions, reporter: Reporter, execution: Execution) -> Report:
            over.set()
            raise ConnectionError("Spark has gone")

        report, said = self.said_by(job, over)
        assert (report["status"], said) == ("error", [])


def test_threads_share_one_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, at_once, most = [], [0], [0]
    lock, room = threading.Lock(), threading.Semaphore(0)

    def job(options: VerifyOptions, reporter: Reporter, execution: Execution) -> Report:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
            if at_once[0] == 3:
                room.release(6)
        assert room.acquire(timeout=120)
        with lock:
            at_once[0] -= 1
        return Report("verify", messages=int(options.store))

    monkeypatch.setattr(fleet, "THREADS", 3)
    monkeypatch.setattr(session, "shared_spark", lambda execution: shared.append(execution) or nullcontext())
    members = [Member(VerifyOptions(store=str(number)), None, f"b{number}") for number in range(6)]
    monkeypatch.setattr(fleet, "members_of", lambda options: members)
    report = fleet.run("verify", job, VerifyOptions(store=""), Reporter(quiet=True))
    assert [entry["messages"] for entry in report["brokers"]] == list(range(6))
    assert (report["job"], shared, most) == ("verify", [BROUGHT], [3])


@pytest.mark.spark
def test_in_spark(spark: Any, snapshots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table = str(snapshots.parent / "t")
    shutil.rmtree(snapshots / "missing")
    options = LoadOptions(store="", stores=listed(snapshots), table=table, cluster="c", broker="")
    report = fleet.run("load", load.run, replace(options, on_damage="salvage"), Reporter(quiet=True))
    assert report.exit_code == 1, report.to_text()
    found = dict(spark.read.format("delta").load(table).groupBy("broker").count().collect())
    assert found == {entry["broker"]: entry["rows"] for entry in report["brokers"]}
    assert (found["a"], found["b"]) == (100, 101)
    verified = fleet.run("verify", verify.run, VerifyOptions(store="", stores=options.stores), Reporter(quiet=True))
    assert of_each(verified, "exit_code", "messages")["b"] == (1, 101)
    assert session._shared is None


def test_who_waits_hears_each_half_minute_that_a_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    reporter: Any = type("Listener", (), {"say": said.append, "for_part": lambda name: None, "seconds": 1, "notes": []})
    members = [Member(InspectOptions(store=name), None, name) for name in ("a", "b")]
    rounds = [None, None, "b", None, "a"]
    seconds = []

    def wait(waiting: set[Any], *, timeout: float, return_when: str) -> tuple[set[Any], set[Any]]:
        seconds.append(timeout)
        name = rounds.pop(0)
        done = {future for future in waiting if future.result()["name"] == name}
        return done, waiting - done

    monkeypatch.setattr(fleet, "wait", wait)
    monkeypatch.setattr(fleet, "members_of", lambda options: members)
    monkeypatch.setattr(session, "shared_spark", lambda execution: nullcontext())
    job: Any = lambda options, *unused: Report("inspect", "ok", name=options.store)  # noqa: E731
    fleet.run("inspect", job, InspectOptions(store=""), reporter)
    assert [text.partition(": ok")[0] for text in said] == [
        "0 of 2 brokers are done", "0 of 2 brokers are done", "1 of 2: b", "1 of 2 brokers are done", "2 of 2: a",
    ]  # fmt: skip
    assert set(seconds) == {30.0}


def test_a_line_has_what_matters() -> None:
    assert outcome(Report("load", rows=1234, skipped=False, seconds=2.04)) == "ok, 1,234 rows, 2.0 s"
    assert outcome(Report("load", rows=0, skipped=True, seconds=0.5)) == "ok, nothing new, 0.5 s"
    damaged = Report("inspect", "damaged", messages=5, lost_messages_at_least=2, damaged_ranges=[{}], seconds=1)
    assert outcome(damaged) == "damaged, 5 messages, 2 lost at least, 1 damaged ranges, 1.0 s"
    differing = Report(
        "verify", "differences", messages=5, counts={"missing_unit": 7}, hazard_counts={"index_order": 1}
    )
    assert outcome(differing) == "differences, 5 messages, 7 missing_unit, 1 index_order"
    assert outcome(Report("verify", "error", error="gone (/s)")) == "error, gone (/s)"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "ok"),
        ({"rows": 0, "messages": 7}, "ok, 0 rows"),
        ({"messages": 0}, "ok, 0 messages"),
        ({"messages": 12, "lost_messages": 0, "lost_messages_at_least": 0, "damaged_ranges": []}, "ok, 12 messages"),
        ({"messages": 1234}, "ok, 1,234 messages"),
        ({"lost_messages": 1234, "lost_messages_at_least": 2345}, "ok, 1,234 lost, 2,345 lost at least"),
        ({"counts": {"a": 1234, "b": 1}, "hazard_counts": {"c": 2345}}, "ok, 1,234 a, 1 b, 2,345 c"),
        ({"counts": None, "hazard_counts": None, "damaged_ranges": None}, "ok"),
        ({"damaged_ranges": [{}] * 1234}, "ok, 1,234 damaged ranges"),
        ({"seconds": 0.06}, "ok, 0.1 s"),
        ({"seconds": 2.0, "error": "gone"}, "ok, gone"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_said(facts: dict[str, Any], said: str) -> None:
    assert outcome(Report("verify", **facts)) == said


def test_all_of_a_report() -> None:
    members = [Member(VerifyOptions(store="/s/a"), "east", "a"), Member(VerifyOptions(store="/s/b"), None, None)]
    reports = [
        Report("verify", bytes=5, messages=4, lost_messages=None, cluster="x", broker="y", store="/z"),
        Report("verify", "differences", bytes=7, lost_messages=2),
    ]
    report = answer("verify", list(zip(members, reports, strict=True)), Reporter(quiet=True))
    report.pop("seconds")
    assert report == {
        "job": "verify", "status": "differences", "statuses": {"ok": 1, "differences": 1}, "bytes": 12, "messages": 4,
        "lost_messages": 2, "notes": [], "brokers": [
            {"cluster": "east", "broker": "a", "store": "/s/a", "exit_code": 0, "status": "ok", "bytes": 5,
             "messages": 4, "lost_messages": None},
            {"cluster": None, "broker": None, "store": "/s/b", "exit_code": 1, "status": "differences", "bytes": 7,
             "lost_messages": 2},
        ],
    }  # fmt: skip
    assert report.exit_code == 1
    assert report.to_text().splitlines() == [
        "verify: 2 brokers, 1 ok, 1 differences", "east/a  ok, 4 messages", "/s/b    differences, 2 lost",
    ]  # fmt: skip


def test_the_largest_exit_code_counts() -> None:
    reports = [
        Report("load", rows=3, messages=4, cluster="x", store="/elsewhere"),
        Report("load", "refused", error="no"),
        Report("load", "damaged", rows=2, messages=2),
    ]
    members = [Member(VerifyOptions(store=f"/s/{number}"), None, f"b{number}") for number in range(3)]
    report = answer("load", list(zip(members, reports, strict=True)), Reporter(quiet=True))
    assert (report["status"], report.exit_code, report["rows"], report["messages"]) == ("refused", 2, 5, 6)
    assert report["brokers"][0] == {
        "cluster": None, "broker": "b0", "store": "/s/0", "exit_code": 0, "status": "ok", "rows": 3, "messages": 4,
    }  # fmt: skip
    assert report.to_text().splitlines()[1:] == ["b0  ok, 3 rows", "b1  refused, no", "b2  damaged, 2 rows"]
