"""What ``rebuild`` says to input that is wrong: one line, the exit code of the contract, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import golden
from support.here import tasks_here
from support.planting import flip
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder, Message

from jobs.cli import command_line
from jobs.contract.options import InspectOptions, TopicFilter
from jobs.log.opening import open_store
from storeformat.errors import DamagedLog, MissingInput
from storeformat.storage import files

ROOT = Path(__file__).resolve().parents[3]
STORE = "base-clean-5.3.3"
SIZES = ("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=60")


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    """Lets ``rebuild`` run in this process, without Spark."""
    with tasks_here():
        yield


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A copy of a healthy store that the test may break: its log alone."""
    root = tmp_path / "store"
    shutil.copytree(golden.unpack(STORE) / "commitlog", root / "commitlog")
    return root


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def refuse(capsys: pytest.CaptureFixture[str], store: Path, *more: str) -> tuple[int, str]:
    """Exit code and error text of a rebuild that must not happen; asserts that it left nothing."""
    output = store.parent / "output"
    code = command_line.main(["rebuild", "--store", str(store), "--output", str(output), "--quiet", *SIZES, *more])
    said = capsys.readouterr()
    assert said.out == ""
    assert 1 <= len(said.err.strip().splitlines()) <= 2, said.err
    assert "Traceback" not in said.err
    assert not output.exists()
    assert [path.name for path in store.parent.iterdir() if "staging" in path.name] == []
    return code, said.err


def emptied(store: Path) -> None:
    for segment in segments(store):
        os.truncate(segment, 0)


def linked(store: Path, number: int) -> None:
    path = segments(store)[number]
    path.unlink()
    path.symlink_to("/nonexistent")


def stray(store: Path) -> None:
    for name in ("notes.txt", "core.4711"):
        (store / "commitlog" / name).write_text("x")


Breaking = Callable[[Path], object]
WRONG: dict[str, tuple[Breaking, int, list[str]]] = {
    "no store": (shutil.rmtree, 66, ["STORE"]),
    "no log": (lambda store: shutil.rmtree(store / "commitlog"), 66, ["commitlog"]),
    "empty log": (lambda store: [segment.unlink() for segment in segments(store)], 65, ["empty"]),
    "segments without a byte": (emptied, 65, ["empty"]),
    "stray files": (stray, 65, ["there are 2 stray files in the commit log: found core.4711, notes.txt"]),
    "pipe": (lambda store: os.mkfifo(store / "commitlog" / f"{196_608:020d}"), 65, ["not a regular file"]),
    "cut segment": (lambda store: os.truncate(segments(store)[1], 60_000), 65, ["60000", "65536"]),
    **{
        f"first segment of {length} bytes": (
            lambda store, length=length: os.truncate(segments(store)[0], length),
            65, [f"found {length}, expected 65536 (STORE/commitlog/{0:020d})"],
        )
        for length in (0, 60_000, 65_540)
    },
    "lost segment": (lambda store: segments(store)[1].unlink(), 65, ["00000000000000065536"]),
    "last segment leads nowhere": (lambda store: linked(store, -1), 66, ["00000000000000131072"]),
    "segment leads nowhere": (lambda store: linked(store, 1), 66, ["00000000000000065536"]),
    "name that is no UTF-8": (lambda store: (store / "commitlog" / os.fsdecode(b"\xff")).mkdir(), 66, ["UTF-8"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_store_that_is_wrong(name: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_it, code, phrases = WRONG[name]
    break_it(store)
    found, said = refuse(capsys, store)
    assert found == code
    assert [phrase for phrase in phrases if phrase.replace("STORE", str(store)) not in said] == [], said


@pytest.mark.parametrize(
    ("words", "code", "phrases"),
    [
        ("--set mappedFileSizeCommitLog=131072", 65, ["65536", "131072"]),
        ("--broker-conf STORE", 66, ["not a regular file"]),
        ("--broker-conf STORE/../broker.conf", 65, ["broker.conf"]),
        ("--keep-crc-failures", 64, ["salvage"]),
        ("--topic A --only index", 64, ["--topic selects"]),
        *((f"--topic {path}", 64, ["TOPIC:QUEUE"]) for path in ("A/0", "/", ".", "..", "../commitlog")),
        *((f"--output {scheme}", 64, ["it has a scheme and no path"]) for scheme in ("s3://", "gs:///")),
        ("--commitlog STORE/index", 65, ["no segment"]),
        *(
            (f"--set {wrong}", 65, [wrong.partition("=")[0]])
            for wrong in (
                "mappedFileSizeConsumeQueue=2147483648", "mappedFileSizeConsumeQueue=-20",
                "mappedFileSizeConsumeQueue=lots", "maxHashSlotNum=0", "maxIndexNum=2000000000",
                "messageDelayLevel=1s_five",
            )
        ),
    ],
)  # fmt: skip
def test_options_that_are_wrong(
    words: str, code: int, phrases: list[str], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Published, a rebuild of such a topic would take away what lies there."""
    for name in ("index", "consumequeue"):
        shutil.copytree(golden.unpack(STORE) / name, store / name)
    (store.parent / "broker.conf").write_text("mappedFileSizeCommitLog=64K")
    found, said = refuse(capsys, store, *words.replace("STORE", str(store)).split())
    assert found == code
    assert [phrase for phrase in phrases if phrase not in said] == [], said
    assert "away" not in said


def test_an_empty_last_segment_is_left_out_with_a_word(store: Path) -> None:
    os.truncate(segments(store)[-1], 0)
    opened = open_store(InspectOptions(store=str(store)))
    assert len(opened.segments) == len(segments(store)) - 1
    assert any(str(segments(store)[-1]) in note for note in opened.notes)


@pytest.mark.parametrize("lost", [0, 12_345])
def test_the_advice_for_a_cut_or_missing_segment_leads_on(store: Path, lost: int) -> None:
    """Padded with zeros, what is left of it and all others are read past the damage."""
    os.truncate(segments(store)[1], lost)
    os.truncate(segments(store)[1], 65_536)
    end = rebuild_here(golden.unpack(STORE), store.parent / "whole", {}).reading.end
    reading = rebuild_here(store, store.parent / "work", {}, on_damage="salvage").reading
    assert reading.end == end
    assert all(65_536 <= item.begin < item.end <= 131_072 for item in reading.damaged)


@pytest.mark.parametrize("topic", ["Nope", "A:99", "a"])
def test_topic_that_is_nowhere(store: Path, topic: str) -> None:
    options = {"topics": (TopicFilter.parse(topic),), "only": ("consumequeue",)}
    with pytest.raises(MissingInput, match="topic or queue"):
        rebuild_here(store, store.parent / "work", {}, **options)
    shutil.copytree(golden.unpack(STORE) / "consumequeue" / "A" / "0", store / "consumequeue" / topic.replace(":", "/"))
    if ":" not in topic:
        (store / "consumequeue" / topic / "0").mkdir()
    assert len(rebuild_here(store, store.parent / "work2", {}, **options).rows) == 0


@pytest.mark.parametrize(
    ("name", "conf", "both"),
    [
        (STORE, "mappedFileSizeCommitLog=1073741824", ("1073741824", "65536")),
        (STORE, "mappedFileSizeConsumeQueue=6000000", ("6000000", "1000")),
        (STORE, "maxHashSlotNum=5000000\nmaxIndexNum=20000000", ("420000040", "1640")),
        (STORE, "enableDLegerCommitLog=true", ("no dledger-ID/data", "expected dledger-ID/data")),
        ("batch-cq-5.3.3", "mapperFileSizeBatchConsumeQueue=13800000", ("13800000", "920")),
        ("cq-ext-5.3.3", "enableConsumeQueueExt=true\nmappedFileSizeConsumeQueueExt=50331648", ("50331648", "2048")),
    ],
)
def test_broker_conf_that_does_not_fit_the_store(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, conf: str, both: tuple[str, str]
) -> None:
    shutil.copytree(golden.unpack(name), tmp_path / "store")
    (tmp_path / "broker.conf").write_text(f"brokerName=a\n{conf}\n")
    output = tmp_path / "output"
    more = ["--broker-conf", str(tmp_path / "broker.conf"), "--quiet"]
    code = command_line.main(["rebuild", "--store", str(tmp_path / "store"), "--output", str(output), *more])
    said = capsys.readouterr().err
    assert code == 65
    assert len(said.strip().splitlines()) <= 2
    assert all(value in said for value in both), said
    assert not output.exists()


def test_output_inside_the_store_by_a_link(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store.parent / "link").symlink_to(store)
    code = command_line.main(["rebuild", "--store", str(store), "--output", str(store.parent / "link" / "new"), *SIZES])
    assert code == 2
    assert "inside the store" in capsys.readouterr().err
    elsewhere = store.parent / "elsewhere"
    elsewhere.mkdir()
    named = ["--commitlog", str(store / "commitlog"), "--output", str(store / "commitlog" / "new")]
    assert command_line.main(["rebuild", "--store", str(elsewhere), *named, *SIZES]) == 2


def test_somebody_else_fills_the_output_meanwhile(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output, repaired, rename = store.parent / "output", store.parent / "repaired", files.rename

    def late(source: str, target: str) -> None:
        output.mkdir()
        (output / "mine").write_text("keep")
        assert list(repaired.iterdir())
        rename(source, target)

    monkeypatch.setattr(files, "rename", late)
    damage_second_record(store)
    line = ["rebuild", "--store", str(store), "--output", str(output), *SIZES]
    assert command_line.main([*line, "--on-damage", "salvage", "--repair-log", str(repaired)]) == 2
    assert "in the meantime" in capsys.readouterr().err
    assert sorted(path.name for path in store.parent.iterdir()) == ["output", "store"]
    assert [path.name for path in output.iterdir()] == ["mine"]


def test_a_dry_run_makes_no_directory(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = store.parent / "a" / "b" / "output"
    line = ["rebuild", "--store", str(store), "--output", str(place), *SIZES]
    assert command_line.main([*line, "--dry-run"]) == 0
    assert command_line.main([*line, "--topic", "Nope"]) == 66
    assert [path.name for path in store.parent.iterdir()] == ["store"]
    assert command_line.main(line) == 0
    assert [path.name for path in place.parent.iterdir()] == ["output"]
    (place.parent / ".other.1234.staging").mkdir()
    capsys.readouterr()
    assert command_line.main(["rebuild", "--store", str(store), "--output", str(place.parent / "other"), *SIZES]) == 0
    assert ".other.1234.staging belongs to a rebuild that" in capsys.readouterr().err


@pytest.mark.parametrize("first", [0, 299_990])
def test_what_a_report_says_of_a_rebuild_and_of_a_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: int
) -> None:
    """A queue that begins at a high offset takes more than its log."""
    log = LogBuilder(4096)
    log.queue_offsets["T", 0] = first
    log.message(topic="T", keys="k")
    line = ["rebuild", "--store", str(log.write(tmp_path / "s")), "--output", str(tmp_path / "out"), "--json", *SIZES]
    for dry in (["--dry-run"], []):
        assert command_line.main([*line, *dry]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["dry_run"], report["output"]) == ((True, None) if dry else (False, str(tmp_path / "out")))
        assert (report["queues"], report["consume_queue_units"], report["index_entries"]) == (1, 1, 1)
        assert ["the output takes" in note for note in report["notes"]].count(True) == (first > 0)


def test_output_that_is_a_link_to_an_empty_place(store: Path) -> None:
    link = store.parent / "output"
    link.symlink_to(store.parent / "place")
    assert command_line.main(["rebuild", "--store", str(store), "--output", str(link), "--quiet", *SIZES]) == 0
    assert link.is_symlink()
    assert (store.parent / "place" / "manifest.json").is_file()


def damage_second_record(store: Path) -> int:
    """Flips a bit in the body of the second record; returns its offset."""
    data = segments(store)[0].read_bytes()
    first = int.from_bytes(data[:4], "big")
    assert int.from_bytes(data[first + 84 : first + 88], "big") > 0
    flip(segments(store)[0], first + 88)
    return first


@pytest.mark.spark
@pytest.mark.parametrize(
    ("damaged", "code", "said"),
    [(True, 2, r"BODY_CRC.* offset {}\b|offset {}\b.*BODY_CRC"), (False, 65, r"notes\.txt")],
)
def test_a_refusal_while_spark_starts_and_one_by_its_tasks(store: Path, damaged: bool, code: int, said: str) -> None:
    """With Spark, in a process of its own."""
    offset = damage_second_record(store)
    if not damaged:
        (store / "commitlog" / "notes.txt").write_text("do not touch")
    output = store.parent / "output"
    line = [sys.executable, "-m", "jobs", "rebuild", "--store", str(store), "--output", str(output), "--quiet", *SIZES]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: Using incubator modules")]
    assert (done.returncode, done.stdout, len(lines) <= 2) == (code, "", True), done.stderr
    assert re.search(said.format(offset, offset), done.stderr)
    assert "Traceback" not in done.stderr
    assert [path.name for path in store.parent.iterdir()] == ["store"]


def test_damage_ends_the_log_under_stop(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offset = damage_second_record(store)
    output = store.parent / "output"
    code = command_line.main(
        ["rebuild", "--store", str(store), "--output", str(output), "--on-damage", "stop", "--json", *SIZES]
    )
    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert report["status"] == "damaged"
    assert report["log_end"] == offset
    assert report["messages"] == 1
    assert report["damaged_ranges"][0]["begin"] == offset
    assert (output / "manifest.json").exists()


@pytest.mark.parametrize("topic", ["../../x", "a/b", "a\0b", "..", "."])
def test_topic_that_is_no_directory(tmp_path: Path, topic: str) -> None:
    log = LogBuilder(segment_size=65_536)
    log.message(topic="good", queue_id=0, queue_offset=0, body=b"x")
    bad = log.message(topic=topic, queue_id=0, queue_offset=0, body=b"x")
    log.write(tmp_path / "store")
    with pytest.raises(DamagedLog, match="BAD_NAME") as refusal:
        rebuild_here(tmp_path / "store", tmp_path / "work", {})
    assert refusal.value.offset == bad.offset
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("query id C0A8000900002A9F0000000000000000", 0),
        ("query key --topic A --key x", 65),
        ("inspect --limit 1", 0),
        ("rebuild --output OUT --only consumequeue", 0),
        ("rebuild --output OUT --topic A", 66),  # there is no such topic: seen by the scan
        ("rebuild --output OUT --only checkpoint", 65),
        ("load --table OUT --cluster c --broker b", 0),
    ],
)
def test_index_sizes_matter_to_those_who_use_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, code: int
) -> None:
    words = [str(tmp_path / "out") if word == "OUT" else word for word in line.split()]
    words += ["--store", str(golden.unpack("cq-default-size-5.3.3")), "--quiet", "--json"]
    assert command_line.main(words) == code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "version", "shown"),
    [("base-clean-5.5.0", "4.6", "5.5"), ("base-clean-5.5.0", "5.5", None), ("base-clean-5.3.3", "4.9", None)],
)
def test_rules_of_another_release_than_the_store_shows(name: str, version: str, shown: str | None) -> None:
    options = InspectOptions(store=str(golden.unpack(name)), broker_version=version)
    notes = [note for note in open_store(options, needs_index_sizes=False).notes if "as requested" in note]
    assert [f"the store suggests {shown}" in note for note in notes] == [True] * (shown is not None)


@pytest.mark.parametrize(("version", "code"), [("4.6", 65), ("4.9", 65), ("5.0", 0), ("5.1", 0)])
def test_a_release_that_knows_no_long_topics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, code: int
) -> None:
    """Its broker would end the log there; a light queue's long name makes no record long."""
    log = LogBuilder()
    log.multi_dispatched(Message(topic="T" * 127), ["%LMQ%" + "l" * 123])
    log.write(tmp_path / "store")
    words = ("--broker-version", version, "--set", "enableMultiDispatch=true", "--set", "enableLmq=true")
    line = ["rebuild", "--store", str(tmp_path / "store"), "--quiet", *SIZES, *words, "--output"]
    assert command_line.main([*line, str(tmp_path / "one")]) == 0
    log.message(topic="T" * 128)
    log.write(tmp_path / "store")
    capsys.readouterr()
    assert command_line.main([*line, str(tmp_path / "two")]) == code
    said = "brokers of this release cannot read this log: they end it at the first record of a topic of more than 127 "
    assert (said in capsys.readouterr().err) == bool(code)
