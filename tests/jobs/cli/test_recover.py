"""``recover`` on the damages of ``start_cases``: what it can make again is made, and nothing else is touched."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.drilling import Done, run_job
from support.here import tasks_here
from support.start_cases import ROWS, Row
from support.store_to_start import StoreToStart, healthy_store

from jobs.cli.command_line import main
from jobs.preflight.reason import ROWS as RULES
from storeformat.javaproperties import as_written

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
    left = {reason["rule"] for reason in done.report["reasons"] if reason["unsafe"] or reason["recover"] != "delays"}
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
    lines = text_of(store, capsys, "--yes")
    assert lines[0].startswith("safe to start")
    assert (lines[0].partition(": ")[2], lines[-1]) == ("start the broker", "next: start the broker")
    back = next(line for line in lines if line.startswith("done: the way back: "))
    assert re.fullmatch(r"done: the way back: ./spark-submit.sh restore --store \S+ --backup \S+", back)


def test_nothing_is_done_before_a_person_has_decided(tmp_path: Path) -> None:
    store = without_queues(tmp_path)
    store.conf["storePathRootDir"] = "/elsewhere"
    done = recover(store, "--yes")
    assert (done.code, done.report["plan"]) == (1, [])
    assert not (store.root / "consumequeue").exists()


@pytest.mark.parametrize("with_replica", [False, True])
def test_a_damaged_log_is_repaired_beside_it(with_replica: bool, tmp_path: Path) -> None:
    """Sound segments are links, but for those to which the broker goes on to write."""
    store, replica = healthy_store(tmp_path / "store", 100), tmp_path / "replica"
    shutil.copytree(store.root, replica)
    (replica / "lock").unlink(missing_ok=True)
    content = bytearray(store.segment(1).read_bytes())
    content[200:260] = b"\xff" * 60
    store.segment(1).write_bytes(content)
    (store.root / "abort").touch()
    done = recover(store, "--yes", *(["--replica", replica] if with_replica else []))
    log = store.root / "commitlog-repaired-0"
    assert done.report["next"] == f"put storePathCommitLog={log} into broker.conf, then start the broker"
    assert ("lost_messages" in done.report) == (not with_replica)
    segments = sorted(log.iterdir())
    assert [path.stat().st_nlink for path in segments] == [2, 1, *[2] * (len(segments) - 3), 1]
    if with_replica:
        assert segments[1].read_bytes() == (replica / "commitlog" / segments[1].name).read_bytes()


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
    shutil.rmtree(store.root / "consumequeue")
    (work / "mine").mkdir(parents=True)
    refused = recover(store, "--yes", "--work", work)
    assert (refused.code, (work / "mine").is_dir()) == (2, True)
    assert "holds something else" in refused.report["error"]
