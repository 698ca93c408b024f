"""``recover`` on the damages of ``start_cases``: what it can make again is made, and nothing else is touched."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import golden
from support.drilling import Done, run_job
from support.here import tasks_here
from support.hostile import BATCH, INDEX_HEADER, KINDS, RECORD, UNIT, at_once, in_a_child, last_unit, overwrite, plant
from support.report_facts import facts
from support.start_cases import ROWS, Row
from support.store_builder import overwrite_log
from support.store_to_start import SEGMENT, StoreToStart, healthy_store

from jobs.cli import demo
from jobs.cli.command_line import main
from jobs.contract.options import DemoOptions
from jobs.contract.report import Report, Reporter
from jobs.preflight.stopped_store import ROWS as RULES
from storeformat.errors import Refused
from storeformat.store.broker_rules import as_written

MADE = [
    pytest.param(row, row.releases.split()[-1], id=row.name)
    for row in ROWS
    if row.said and RULES[row.said[0].case].get("recover", "decide") not in ("decide", "{part}")
]


NOTHING_PROVES = ("no_offsets", "committed_beyond_queue")
"""No copy of these offsets is left, or their topic has no queue: a person decides."""


def recover(store: StoreToStart, *more: object) -> Done:
    conf = store.root.parent / "broker.conf"
    conf.write_text("".join(f"{name}={as_written(value)}\n" for name, value in store.conf.items()))
    return run_job("recover", "--store", store.root, "--broker-conf", conf, "--broker-version", store.version, *more)


@pytest.mark.parametrize(("row", "release"), MADE)
def test_what_can_be_made_again_is(row: Row, release: str, tmp_path: Path) -> None:
    store = row.damage(row.made(tmp_path / "store", release))
    rule = row.said[0].case.partition(".")[0]
    before = {path: path.read_bytes() for path in (store.root / "commitlog").iterdir() if path.is_file()}
    planned = recover(store)
    assert (planned.code, planned.report["answer"].startswith("safe")) in ((1, False), (0, True)), planned.report
    done = recover(store, "--yes")
    left = {reason["rule"] for reason in done.report["reasons"] if reason["unsafe"] or reason["recover"]}
    assert rule not in left or rule in NOTHING_PROVES, done.report
    assert {path: path.read_bytes() for path in before} == before
    assert not Path(f"{store.root}.recover").exists()


def text_of(store: StoreToStart, capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    given = [word for name, value in store.conf.items() for word in ("--set", f"{name}={value}")]
    line = ["recover", "--store", str(store.root), *given, "--broker-version", store.version or "", "--quiet", *more]
    with tasks_here():
        main(line)
    return capsys.readouterr().out.splitlines()


def without_queues(tmp_path: Path) -> StoreToStart:
    store = healthy_store(tmp_path / "store")
    shutil.rmtree(store.root / "consumequeue")
    return store


def test_the_plan_and_its_end_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = without_queues(tmp_path)
    lines = text_of(store, capsys)
    assert lines[0] == "not safe to start: run it again with --yes"
    assert lines[-1].startswith("next: ./spark-submit.sh recover --store ")
    assert lines[-1].endswith(" --yes")
    assert any(line.startswith("plan: rebuild consumequeue, index, checkpoint") for line in lines)
    kept = Path(f"{store.root}.recover.json")  # of a run that was killed behind its first publish
    kept.write_text('{"log":"named by now","lines":["rebuild x"],"back":["restore 1"],"losses":{},"torn":false}')
    lines = text_of(store, capsys, "--yes")
    assert "done: rebuild x" in lines
    assert not kept.exists()
    assert lines[0].startswith("safe to start")
    assert (lines[0].partition(": ")[2], lines[-1]) == ("start the broker", "next: start the broker")
    back = next(line for line in lines if line.startswith("done: the way back: "))
    assert re.fullmatch(r"done: the way back: ./spark-submit.sh restore --store \S+ --backup \S+; restore 1", back)


def test_nothing_is_done_before_a_person_has_decided(tmp_path: Path) -> None:
    store = without_queues(tmp_path)
    store.conf["storePathRootDir"] = "/elsewhere"
    done = recover(store, "--yes")
    assert (done.code, done.report["plan"]) == (1, [])
    assert not (store.root / "consumequeue").exists()


@pytest.mark.parametrize("with_replica", [False, True])
def test_a_damaged_log_is_repaired_beside_it(
    with_replica: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sound segments are links, but for those to which the broker goes on to write."""
    store, replica = healthy_store(tmp_path / "store", 100), tmp_path / "replica"
    shutil.copytree(store.root, replica)
    (replica / "lock").unlink(missing_ok=True)
    overwrite_log(store.root / "commitlog", SEGMENT + 200, b"\xff" * 60)
    (store.root / "abort").touch()
    done = recover(store, "--yes", *(["--replica", replica] if with_replica else []))
    log = store.root / "commitlog-repaired-0"
    assert done.report["next"] == f"put storePathCommitLog={log} into broker.conf, then start the broker"
    assert recover(store).report["next"] == done.report["next"]
    (reason,) = [reason for reason in store.answer().reasons if reason.unsafe]
    assert (reason.rule, reason.cure) == ("store_path", f"set storePathCommitLog={log} in broker.conf")
    assert ("lost_messages" in done.report) == (not with_replica)
    store.conf["storePathCommitLog"] = str(log)
    assert recover(store).code == 0
    back = run_job("restore", "--store", store.root, "--broker-conf", store.root.parent / "broker.conf")
    assert (back.code, "set storePathCommitLog as it was" in back.said) == (2, True)
    del store.conf["storePathCommitLog"]
    segments = sorted(log.iterdir())
    assert [path.stat().st_nlink for path in segments] == [2, 1, *[2] * (len(segments) - 3), 1]
    if with_replica:
        assert segments[1].read_bytes() == (replica / "commitlog" / segments[1].name).read_bytes()
    for offsets in store.root.glob("config/consumerOffset.json*"):
        offsets.unlink()
    assert text_of(store, capsys)[0] == f"not safe to start: decide first, then {done.report['next']}"


def test_a_record_with_a_wrong_body_may_be_kept(tmp_path: Path) -> None:
    store = without_queues(tmp_path)
    segment = min((store.root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[88] ^= 1  # body of the first record: 84 bytes of head, its length
    segment.write_bytes(data)
    plan = recover(store).report["plan"]
    assert any(line.endswith("rebuild --keep-crc-failures keeps these") for line in plan), plan


@pytest.mark.parametrize(("kept", "codes"), [(-2, (1, 0)), (20, (1, 1))])
def test_of_torn_offsets_what_nothing_shows_is_decided_by_a_person(
    kept: int, codes: tuple[int, int], tmp_path: Path
) -> None:
    """Offsets after the tear are lost: called again, the decision is taken, where one is left."""
    store = healthy_store(tmp_path / "store")
    torn = store.config("consumerOffset.json")
    torn.write_text(torn.read_text().rstrip("}\n")[:kept])
    done = recover(store, "--yes")
    assert (done.code, recover(store).code) == codes, done.report
    if codes == (1, 0):
        assert json.loads(torn.read_text())["offsetTable"]["Stock@readers"] == {"0": 9, "1": 0}


def test_the_work_may_be_in_the_backup_of_the_store(tmp_path: Path) -> None:
    store = without_queues(tmp_path)
    done = recover(store, "--yes", "--work", store.root / "backup" / "recover")
    assert (done.code, (store.root / "backup" / "recover").exists()) == (0, False)
    assert (store.root / "consumequeue").exists()


def test_what_an_interrupted_run_left_is_made_anew_and_nothing_else_removed(tmp_path: Path) -> None:
    store, work = without_queues(tmp_path), tmp_path / "work"
    for name in ("rebuilt/consumequeue", ".rebuilt.1234.staging", "repaired"):
        (work / name).mkdir(parents=True)
    assert recover(store, "--yes", "--work", work).code == 0
    assert not work.exists()
    (work / "rebuilt").mkdir(parents=True)
    assert (recover(store, "--yes", "--work", work).code, work.exists()) == (0, False)
    shutil.rmtree(store.root / "consumequeue")
    (work / "mine").mkdir(parents=True)
    refused = recover(store, "--yes", "--work", work)
    assert (refused.code, (work / "mine").is_dir()) == (2, True)
    assert "holds something else" in refused.report["error"]


# ``demo`` with its tasks in this process: what it makes of the bundled store and says; archives of every Python
@pytest.mark.usefixtures("spark")  # the report is asked of it
def test_a_demo_makes_what_it_says(tmp_path: Path) -> None:
    out, said = tmp_path / "kept", io.StringIO()
    with tasks_here():
        report = demo.run(DemoOptions(output=str(out)), Reporter(stream=said))
        with pytest.raises(Refused, match="not empty"):
            demo.run(DemoOptions(output=str(out)), Reporter(quiet=True))
    counts = json.loads((demo._DATA / "store.json").read_text(encoding="utf-8"))["counts"]
    expected = {
        "job": "demo", "status": "ok", "broker": "5.3.3", "messages": counts["messages"], "rows": counts["messages"],
        "consume_queue_files": counts["consume_queue_files"], "index_files": counts["index_files"],
        "consume_queue_files_identical": counts["consume_queue_files"],
        "index_files_identical": counts["index_files"],
    }  # fmt: skip
    assert {name: report[name] for name in expected} == expected
    assert [path.name for path in sorted(out.iterdir())] == ["messages", "rebuilt", "store"]
    assert [path.name for path in (out / "store" / "lost").iterdir()] == ["commitlog"]
    rows = deltalake.DeltaTable(out / "messages").to_pyarrow_table(columns=["cluster", "broker"])
    assert set(map(tuple, map(dict.values, rows.to_pylist()))) == {("demo", "broker-a")}
    assert [line.partition(" store ")[0] for line in said.getvalue().splitlines()] == [
        "unpacked the", "loading its messages into a Delta table",
    ]  # fmt: skip
    assert "4,273 messages, 10 segments, 2.6 MB of commit log" in report.to_text()
    assert "\n  A  " in report.to_text()
    assert f"In {out}: rebuilt/" in report.to_text()


def test_a_demo_whose_files_nobody_keeps_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.tempfile, "tempdir", str(tmp_path))
    with demo._workplace(DemoOptions()) as work:
        assert work.parent == tmp_path
        assert work.name.startswith("rocketmq-store-spark-demo-")
    assert list(tmp_path.iterdir()) == []


def test_a_python_whose_archives_know_no_filter_unpacks_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That argument came with Python 3.10.12 and 3.11.4: Debian 12 and early Ubuntu 22.04 have older ones."""
    plain = tarfile.TarFile.extractall

    def extractall(self: tarfile.TarFile, path: Any = ".", members: Any = None, *, numeric_owner: bool = False) -> None:
        plain(self, path, members, numeric_owner=numeric_owner)

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    about = json.loads((demo._DATA / "store.json").read_text(encoding="utf-8"))
    root = demo._unpack(about, tmp_path)
    assert (root / "original" / "consumequeue").is_dir()
    assert [path.name for path in (root / "lost").iterdir()] == ["commitlog"]


def test_files_are_compared_by_their_places_and_bytes(tmp_path: Path) -> None:
    for side, files in (("one", {"T/0": b"a", "T/1": b"b"}), ("other", {"T/0": b"a", "T/1": b"c", "T/2": b"d"})):
        for name, content in files.items():
            path = tmp_path / side / "consumequeue" / name / "0"
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
    (tmp_path / "one" / "consumequeue" / "T" / "directory").mkdir()
    assert demo.compare_queue_files(tmp_path / "one", tmp_path / "other") == (3, 1)


def test_index_files_are_compared_in_their_order(tmp_path: Path) -> None:
    for side, files in (("one", {"1": b"a", "2": b"b", "3": b"c"}), ("other", {"4": b"a", "5": b"x"})):
        (tmp_path / side / "index").mkdir(parents=True)
        for name, content in files.items():
            (tmp_path / side / "index" / name).write_bytes(content)
    assert demo.compare_index_files(tmp_path / "one", tmp_path / "other") == (3, 1)
    assert demo.compare_index_files(tmp_path / "other", tmp_path / "one") == (3, 1)


def said(records: int = 21, same: tuple[int, int] = (9, 2), output: str | None = None) -> Report:
    """What a demo says of a log with 21 rows in the table, nine queue files and two index files."""
    damaged = [SimpleNamespace(begin=10, end=14), SimpleNamespace(begin=20, end=23)]
    reading = SimpleNamespace(
        records=records, record_bytes=1234, blank_bytes=56, unwritten_bytes=78, segments=[1, 2, 3], begin=0, end=4096,
        damaged=damaged, facts=lambda: {"log_end": 4096},
    )  # fmt: skip
    built: Any = SimpleNamespace(reading=reading)
    compared = {"consumequeue": (9, same[0]), "index": (2, same[1])}
    options, about = DemoOptions(output=output), {"rocketmq": "5.3.3"}
    return demo._report(options, about, built, compared, facts(), Reporter(quiet=True))


@pytest.mark.parametrize("wrong", [{"same": (8, 2)}, {"same": (9, 1)}, {"records": 20}])
def test_a_demo_that_differs_says_so(wrong: dict[str, Any]) -> None:
    assert said(**wrong)["status"] == "differences"


# Pipes, devices, sockets, sparse giants and loops of links in the place of files, and numbers that are damaged: one
PLACES = [
    "commitlog", f"commitlog/{0:020d}", "consumequeue", "consumequeue/Orders/0", f"consumequeue/Orders/0/{0:020d}",
    "index", "index/*", "checkpoint", "lock", "abort", "config", "config/topics.json", "config/consumerOffset.json",
    "config/delayOffset.json.bak", "timerlog", "timerwheel", "consumequeue_ext", "batchconsumequeue", "broker.conf",
    "dledger-n0", "backup", "consumequeue/CURRENT", "config/topics/CURRENT",
]  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone makes devices")
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        pytest.param(place, kind, marks=() if kind in ("pipe", others[at % len(others)]) else pytest.mark.slow)
        for others in [[kind for kind in KINDS if kind != "pipe"]]
        for at, place in enumerate(PLACES)
        for kind in KINDS
    ],
)
def test_what_is_no_regular_file_is_named_at_once(place: str, kind: str, tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store")
    conf = store.root / "broker.conf"
    conf.write_text("".join(f"{name}={text}\n" for name, text in store.conf.items()))
    plant(store.root, place, kind)
    parts = "consumequeue,index,checkpoint,consumer-offsets,timers"
    for words in (
        ["preflight"], ["verify"], ["inspect"], ["query", "lag"],
        ["rebuild", "--only", parts, "--output", tmp_path / "out"],
    ):  # fmt: skip
        with at_once():
            done = run_job(*words, "--store", store.root, "--broker-conf", conf, "--broker-version", "5.3", "--quiet")
        assert done.code in (0, 1, 2, 65, 66), (words, done)
        assert "\n" not in str(done.report.get("error", "")), (words, done)


@pytest.mark.parametrize("name", ["lock", "checkpoint", "abort"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "directory"])
def test_a_broker_does_not_start_with_one(name: str, kind: str, tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store")
    (store.root / name).unlink(missing_ok=True)
    {**KINDS, "directory": Path.mkdir}[kind](store.root / name)
    what = "a directory" if kind == "directory" else "no regular file"
    reason = store.only_reason("stray_file")
    assert reason.what == f"{store.root / name} is {what}, where the broker opens a file: it does not start"
    assert reason.unsafe


MOST_WRITTEN = 300 << 20
VALUES = [(1 << 63) - 1, 1 << 62, -1, (1 << 31) - 1, 0]
STORES = ["base-clean-5.5.0", "batch-cq-5.3.3", "lmq-5.5.0", "retention-5.5.0", "cq-ext-5.3.3", "base-killed-4.9.8"]
JOBS = [
    ["inspect"], ["verify"], ["preflight"], ["query", "lag"], ["query", "list", "--topic", "A"],
    ["query", "time", "--topic", "A", "--queue", "0", "--time", "1700000000000"],
    ["rebuild", "--topics-json", "--output", "out"],
    ["rebuild", "--topics-json", "--on-damage", "salvage", "--output", "salvaged"],
]  # fmt: skip


def damage(draw: st.DataObject, root: Path, store: golden.GoldenStore) -> None:
    """Changes one number of a store: in a record, a unit, the header of an index file, or a name."""
    bit, value = draw.draw(st.integers(0, 62)), draw.draw(st.sampled_from([None, *VALUES]))
    queues = {"consumequeue": (20, UNIT), "batchconsumequeue": (46, BATCH)}
    places = [name for name in ("commitlog", "index", *queues) if any(root.glob(f"{name}/**/*"))]
    place = draw.draw(st.sampled_from([*places, "name"]))
    paths = sorted(path for path in root.glob("*/**/*" if place == "name" else f"{place}/**/*") if path.name.isdigit())
    path = draw.draw(st.sampled_from([path for path in paths if place == "name" or path.is_file()]))
    if place == "name":
        number = int(path.name) ^ (1 << bit) if value is None else abs(value)
        target = path.with_name(f"{number:0{len(path.name)}d}")
        if not target.exists():
            path.rename(target)
        return
    begin, fields = 0, INDEX_HEADER
    if place == "commitlog":
        offset = draw.draw(st.sampled_from(sorted(golden.chain(root, store))))
        path = max(segment for segment in path.parent.iterdir() if int(segment.name) <= offset)
        begin, fields = offset - int(path.name), RECORD
    elif place in queues:
        size, fields = queues[place]
        begin = draw.draw(st.sampled_from([0, last_unit(path, size)]))
    at, width = draw.draw(st.sampled_from(fields))
    overwrite(path, begin + at, width, lambda number: number ^ 1 << bit % (8 * width) if value is None else value)


@settings(max_examples=settings.default.max_examples // 10)
@given(data=st.data(), name=st.sampled_from(STORES), tail=st.booleans())
def test_a_damaged_number_costs_neither_the_machine_nor_a_trace(data: st.DataObject, name: str, *, tail: bool) -> None:
    (store,) = golden.stores(name)
    conf = [word for key, value in store.settings.items() for word in ("--set", f"{key}={str(value).lower()}")]
    with tempfile.TemporaryDirectory() as directory:
        root = golden.unpack(store, Path(directory) / "store")
        run_job("inspect", "--store", root, *conf)  # a child then has the compiled kernels
        damage(data, root, store)
        if tail:
            last = max((root / "commitlog").iterdir())
            last.write_bytes(last.read_bytes()[: last.stat().st_size // 2].ljust(last.stat().st_size, b"\0"))

        def work() -> None:
            os.chdir(directory)
            for words in JOBS:
                with at_once(20):
                    done = run_job(*words, "--store", root, *conf, "--quiet")
                assert done.code != 70, (words, done)
                assert "\n" not in str(done.report.get("error", "")), (words, done)
            written = sum(path.stat().st_blocks * 512 for path in Path(directory).glob("[os]*/**/*") if path.is_file())
            assert written < MOST_WRITTEN

        assert in_a_child(work) == ""
