"""Verify: its report, and what it says of committed offsets."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.here import tasks_here
from support.rebuilding import options_for, verify_here
from support.store_builder import LogBuilder
from support.store_to_start import StoreToStart, configure, healthy_store

from jobs.cli import command_line
from jobs.contract.options import VerifyOptions
from jobs.log.log_scan import LogReading
from jobs.verify import verify
from jobs.verify.differences import Subject, Verdicts
from storeformat.queues.queue_check import Finding

# --------------------------------------------------------------------------------------------------------------- verify
(STORE,) = golden.stores("base-clean-5.3.3")
FILE = "consumequeue/A/0/00000000000000000000"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = golden.unpack(STORE, tmp_path)
    configure(root)
    return root


def sizes() -> list[str]:
    given = options_for(Path(), Path(), STORE.settings).settings
    return [part for name, value in given for part in ("--set", f"{name}={value}")]


def run(capsys: pytest.CaptureFixture[str], root: Path, *more: str, spark: bool = False) -> tuple[int, dict[str, Any]]:
    with nullcontext() if spark else tasks_here():
        code = command_line.main(["verify", "--store", str(root), "--json", *sizes(), *more])
    return code, json.loads(capsys.readouterr().out)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def state(root: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}


def test_healthy_store(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(root)
    code, report = run(capsys, root)
    assert (code, report["status"]) == (0, "ok")
    assert report["log_end"] == STORE.end_offset
    assert report["messages"] == STORE.entry["counts"]["messages"]
    assert report["consume_queue_files"] == STORE.entry["counts"]["consume_queue_files"]
    assert report["index_files"] == STORE.entry["counts"]["index_files"]
    assert (report["differences"], report["counts"], report["hazards"]) == ([], {}, [])
    assert state(root) == before


@pytest.mark.spark
def test_differences(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(root / FILE, 15)
    (root / "checkpoint").unlink()
    code, report = run(capsys, root, spark=True)
    assert (code, report["status"]) == (1, "differences")
    assert report["counts"] == {"missing_file": 1, "wrong_unit": 1}
    keys = {"artefact", "topic", "queue_id", "file", "position", "cause", "expected", "found"}
    assert all(difference.keys() == keys for difference in report["differences"])


def test_text_names_file_and_cause(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(root / FILE, 15)
    with tasks_here():
        assert command_line.main(["verify", "--store", str(root), *sizes()]) == 1
    said = capsys.readouterr().out
    assert said.startswith("differences from the log: wrong_unit 1\n")
    assert re.search(r"^next: ./spark-submit.sh rebuild --store \S+ (--set \S+ )+--output \S+\n\Z", said, re.MULTILINE)
    assert FILE in said


def damage_third_segment(root: Path) -> int:
    """Breaks a record's magic code; returns where that record begins."""
    segment = sorted((root / "commitlog").iterdir())[2]
    size = int.from_bytes(segment.read_bytes()[:4], "big")
    flip(segment, size + 4)
    return int(segment.name) + size


def test_damaged_log(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offset = damage_third_segment(root)
    code, report = run(capsys, root)
    assert (code, report["status"]) == (2, "refused")
    code, report = run(capsys, root, "--on-damage", "stop")
    assert (code, report["status"]) == (1, "damaged")
    assert report["log_end"] == offset
    assert report["counts"] == {}
    assert report["hazards"] == []
    code, report = run(capsys, root, "--on-damage", "salvage")
    assert (code, report["status"]) == (1, "damaged")
    assert report["lost_messages"] == 1
    assert report["counts"] == {}, report["differences"]


def test_metrics_count_differences_by_cause(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = tmp_path / "verify.prom"
    assert run(capsys, root, "--metrics", str(said))[0] == 0
    assert f'rocketmq_store_verify_ok{{store="{root}"}} 1.0' in said.read_text().splitlines()
    flip(root / FILE, 7)
    code, report = run(capsys, root, "--metrics", str(said))
    lines = said.read_text().splitlines()
    assert code == 1
    assert f'rocketmq_store_verify_ok{{store="{root}"}} 0.0' in lines
    assert f'rocketmq_store_verify_exit_code{{store="{root}"}} 1.0' in lines, "as of every job"
    for cause, count in report["counts"].items():
        assert f'rocketmq_store_verify_differences{{cause="{cause}",store="{root}"}} {float(count)}' in lines


def test_topic_and_index_do_not_go_together(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run(capsys, root, "--topic", "A", "--only", "index")
    assert code == 64
    assert "index" in report["error"]


def test_a_log_that_lacks_a_segment_is_verified_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LogBuilder(1024)
    for number in range(20):
        log.message(topic="A", body=bytes(40), keys=f"k{number}")
    root = log.write(tmp_path / "store")
    (root / "commitlog" / f"{1024:020d}").unlink()
    words = ["verify", "--store", str(root), "--json", "--only", "consumequeue"]
    with tasks_here():
        assert command_line.main(words) == 65
        capsys.readouterr()
        code = command_line.main([*words, "--on-damage", "salvage"])
    report = json.loads(capsys.readouterr().out)
    lost = [record for record in log.records if 1024 <= record.offset < 2048]
    assert (code, report["messages"]) == (1, 20 - len(lost))


# ----------------------------------------------------------------------------------------------- judge consumer offsets
SIZES = {"maxHashSlotNum": 100, "maxIndexNum": 60}
PARTS = ("consumequeue", "index", "consumer-offsets")


def verdicts(store: StoreToStart, **more: Any) -> Verdicts:
    return verify_here(store.root, {**SIZES, **store.conf}, **{"only": PARTS, **more}).verdicts


def differences(store: StoreToStart) -> list[tuple[Any, ...]]:
    found = verdicts(store).differences
    assert {row["artefact"] for row in found} <= {"consumer-offsets"}
    assert {row["file"] for row in found} <= {"config/consumerOffset.json"}
    return [(row["cause"], row["topic"], row["queue_id"], row["expected"], row["found"]) for row in found]


def test_a_healthy_store(store: StoreToStart) -> None:
    verified = verify_here(store.root, {**SIZES, **store.conf}, only=PARTS)
    assert not verified.verdicts.counts
    assert verified.compared["committed_offsets"] == 4
    assert not verified.verdicts.notes


def test_an_offset_beyond_its_queue(store: StoreToStart) -> None:
    store.commit({"Orders@readers": {0: 10, 1: 11}, "Stock@readers": {7: 1}})
    assert differences(store) == [
        ("beyond_end", "Orders", 1, {"at most": 10}, {"group": "readers", "committed": 11}),
        ("beyond_end", "Stock", 7, {"at most": 0}, {"group": "readers", "committed": 1}),
    ]


def test_what_healthy_brokers_leave_is_a_note(store: StoreToStart) -> None:
    store.segment(0).unlink()
    store.commit({"Orders@readers": {0: 0}, "Gone@readers": {0: 7}})
    found = verdicts(store)
    assert "beyond_end" not in found.counts
    notes = " ".join(found.notes)
    assert "1 committed offsets are before the first message" in notes
    assert "1 committed offsets are of topics that are not configured" in notes


@pytest.mark.parametrize(
    ("main", "backup", "cause", "said"),
    [
        ('{"offsetTable":{', None, "torn_file", {"file": "torn", ".bak": "absent"}),
        ("", '{"offsetTable":{"Orders@readers":{0:1}}}', "torn_file",
         {"file": "empty", ".bak": "sound", ".bak entries": "1"}),
        ("\0\0\0", '{"off', "torn_file", {"file": "torn", ".bak": "torn"}),
        (None, '{"offsetTable":{}}', "missing_file", {"file": "absent", ".bak": "sound", ".bak entries": "0"}),
    ],
)  # fmt: skip
def test_a_file_that_is_torn_or_gone(
    store: StoreToStart, main: str | None, backup: str | None, cause: str, said: dict[str, str]
) -> None:
    path = store.config("consumerOffset.json")
    path.unlink()
    for name, text in ((path, main), (path.with_name(path.name + ".bak"), backup)):
        if text is not None:
            name.write_text(text)
    ((found_cause, _, _, _, found),) = differences(store)
    found.pop("why", None)
    assert (found_cause, found) == (cause, said)


def test_a_broker_killed_while_it_wrote_takes_the_backup(store: StoreToStart) -> None:
    store.write_config("consumerOffset.json.bak", {"offsetTable": {"Orders@readers": {0: 3}}})
    store.config("consumerOffset.json").write_text("")
    (store.root / "abort").touch()
    found = verdicts(store)
    assert (found.counts, found.hazard_counts) == ({}, {"offsets_from_backup": 1})
    assert found.hazards[0]["entries"] == 1
    store.write_config("consumerOffset.json.bak", {"offsetTable": {"Orders@readers": {0: 17}}})
    assert verdicts(store).counts == {"beyond_end": 1}


def test_what_a_broker_takes_from_the_backup_is_judged(store: StoreToStart) -> None:
    store.write_config("consumerOffset.json.bak", {"offsetTable": {"Orders@readers": {0: 17}}})
    store.config("consumerOffset.json").write_text("{")
    assert [row[0] for row in differences(store)] == ["torn_file", "beyond_end"]


def test_the_next_step_makes_what_differs() -> None:
    found, reading = Verdicts(), LogReading([], [], 0, 0, 0, [])
    found.differ(Subject("consumer-offsets"), Finding("torn_file"))
    step = verify._next_step(VerifyOptions(store="/s"), reading, found)
    assert step.endswith(" --store /s --only consumer-offsets --output /s.rebuilt")


def test_no_offsets_where_groups_are_known(store: StoreToStart, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is absent, or a start without it has left it empty; a broker at work may not have written it yet."""
    store.config("consumerOffset.json").unlink()
    assert [(row[0], row[4]) for row in differences(store)] == [("no_committed_offsets", {"file": "absent"})]
    with monkeypatch.context() as patch:
        patch.setattr(verify, "is_live", lambda lock: True)
        assert differences(store) == []
    store.write_config("consumerOffset.json", {"offsetTable": {}})
    assert [(row[0], row[3]) for row in differences(store)] == [("no_committed_offsets", {"groups": ["readers"]})]
    store.commit({})
    assert differences(store) == []


def test_a_copy_without_config_is_not_judged(store: StoreToStart) -> None:
    for path in (store.root / "config").iterdir():
        path.unlink()
    assert differences(store) == []


def test_a_database_of_offsets_is_not_judged(store: StoreToStart) -> None:
    store.commit({"Orders@readers": {0: 17}})
    only = {"only": ("consumer-offsets",)}
    assert verdicts(store, **only).counts == {"beyond_end": 1}
    store.conf["storeType"] = "defaultRocksDB"
    assert not verdicts(store, **only).counts


def test_after_a_crash_the_log_counts_and_not_the_queues(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store", dispatched=36)
    (store.root / "abort").touch()
    assert differences(store) == []


def test_a_log_that_is_read_in_part_proves_no_end(store: StoreToStart) -> None:
    assert not verdicts(store, until_offset=store.log.records[10].offset).counts
