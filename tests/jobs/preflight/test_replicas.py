"""Another copy of the log: longer, shorter, different, alike."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.start_cases import Said, are, bad, note
from support.start_damages import NO_OFFSET, NO_SUBSCRIPTIONS
from support.store_builder import LogBuilder
from support.store_to_start import SEGMENT, StoreToStart, finished, healthy_store

from jobs.preflight import replicas
from jobs.preflight.preflight import judge
from jobs.preflight.reason import Reason
from jobs.preflight.replicas import read_replica
from storeformat.errors import MissingInput
from storeformat.log.segments import Segment

COMMON, OWN, OTHER = 30, 9, 4


def log(messages: int, more: int = 0, *, body: bytes = b"", first: int = 0) -> LogBuilder:
    builder = LogBuilder(SEGMENT)
    for number in range(messages + more):
        text = body if number >= messages else bytes(60)
        builder.message(topic="Orders", queue_id=0, body=text.ljust(60, b"\0"), keys=f"k{number}")
    return builder


def compared(own: StoreToStart, other: StoreToStart) -> tuple[int | None, list[Reason]]:
    stopped = own.stopped()
    replica = read_replica(stopped, str(other.root))
    rules = ("replica_longer", "replica_shorter", "replica_differs")
    return replica.differs_at, [reason for reason in judge(stopped, [replica]).reasons if reason.rule in rules]


def test_alike(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store")
    copy = StoreToStart(tmp_path / "copy", store.log)
    shutil.copytree(store.root, copy.root)
    assert compared(store, copy) == (None, [])


def test_longer_and_shorter(tmp_path: Path) -> None:
    short, long = finished(tmp_path / "short", log(COMMON)), finished(tmp_path / "long", log(COMMON, OWN))
    end, further = short.log.end_offset, long.log.end_offset
    differs, reasons = compared(short, long)
    assert differs is None
    longer = bad("replica_longer", root=str(long.root), end=further, own=end, messages=f"{OWN} messages")
    assert are(reasons, longer)
    differs, reasons = compared(long, short)
    assert differs is None
    assert are(reasons, note("replica_shorter", end=end, own=further, messages=f"{OWN} messages"))


@pytest.mark.parametrize(("age_hours", "unsafe"), [(71, True), (73, False)])
def test_a_log_that_begins_late(tmp_path: Path, age_hours: int, unsafe: bool) -> None:
    """As that of a slave that joined late: retention explains what it lacks, or does not."""
    whole = finished(tmp_path / "whole", log(COMMON))
    late = StoreToStart(tmp_path / "late", whole.log, whole.conf)
    shutil.copytree(whole.root, late.root)
    late.segment(0).unlink()
    stopped = late.stopped()
    stopped = replace(stopped, now_ms=1_700_000_000_000 + age_hours * 3_600_000)
    reasons = judge(stopped, [read_replica(stopped, str(whole.root))]).reasons
    case = "replica_begins_earlier.young" if unsafe else "replica_begins_earlier.old"
    replicas_own = [reason for reason in reasons if reason.rule.startswith("replica")]
    assert are(replicas_own, Said(case, unsafe, {"begin": SEGMENT, "theirs": 0}))


@pytest.mark.parametrize("common", [1, 7, COMMON])
def test_different_from_some_record_on(tmp_path: Path, common: int) -> None:
    own, other = log(common, OWN, body=b"own"), log(common, OTHER, body=b"other")
    differs, (reason,) = compared(finished(tmp_path / "own", own), finished(tmp_path / "other", other))
    first = own.records[common].offset
    assert differs is not None
    assert first <= differs < own.records[common + 1].offset
    said = bad("replica_differs", at=differs, theirs=f"{OTHER} messages", ours=f"{OWN} messages")
    assert are([reason], said)


@pytest.mark.parametrize("common", [1, 25, 50, 75])
def test_different_in_any_of_many_segments(tmp_path: Path, common: int) -> None:
    """The copies are alike up to there, and differ in each segment that follows."""
    own, other = log(common, 80 - common, body=b"own"), log(common, 80 - common, body=b"other")
    differs, _ = compared(finished(tmp_path / "own", own), finished(tmp_path / "other", other))
    assert differs is not None
    assert own.records[common].offset <= differs < own.records[common].end


def test_a_store_that_has_lost_its_log(tmp_path: Path) -> None:
    own, other = healthy_store(tmp_path / "own"), healthy_store(tmp_path / "other")
    for path in (own.root / "commitlog").iterdir():
        path.unlink()
    differs, (reason,) = compared(own, other)
    assert (differs, reason.rule, reason.unsafe, reason.values["end"]) == (
        None, "replica_longer", True, other.log.end_offset
    )  # fmt: skip


def test_offsets_that_a_replica_has(tmp_path: Path) -> None:
    store, other = healthy_store(tmp_path / "store"), healthy_store(tmp_path / "replica")
    NO_SUBSCRIPTIONS(store)
    NO_OFFSET(store)
    stopped = store.stopped()
    assert judge(stopped).safe
    assert are(judge(stopped, [read_replica(stopped, str(other.root))]).reasons, bad("no_offsets.none"))


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(MissingInput) as caught:
        read_replica(healthy_store(tmp_path / "store").stopped(), str(tmp_path / "nothing"))
    assert str(caught.value) == f"there is no segment in the log of this replica ({tmp_path}/nothing/commitlog)"
    assert caught.value.advice == "ROOT is its storePathRootDir"


def test_what_a_report_says_of_a_replica(tmp_path: Path) -> None:
    """Its log lies below its own root, wherever this store's broker.conf puts that of this store."""
    own, other = healthy_store(tmp_path / "own"), healthy_store(tmp_path / "other", messages=80)
    (own.root / "commitlog").rename(tmp_path / "log")
    own.conf["storePathCommitLog"] = str(tmp_path / "log")
    other.segment(0).unlink()
    assert read_replica(own.stopped(), str(other.root)).facts() == {
        "replica": str(other.root), "begin": 4096, "end": other.log.end_offset, "differs_at": None,
    }  # fmt: skip


@pytest.mark.parametrize("where", [0, 1, 4095, 4096, 4096 + 128, 6743, None])
def test_the_first_byte_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: int | None) -> None:
    """From there on all bytes differ; read in blocks of a hundred."""
    monkeypatch.setattr(replicas, "_BLOCK", 100)
    data = bytes(8192)
    changed = data if where is None else data[:where] + b"x" * (8192 - where)
    logs = []
    for name, content in (("a", data), ("b", changed)):
        (tmp_path / name).mkdir()
        parts = []
        for base in (0, 4096):
            path = tmp_path / name / f"{base:020d}"
            path.write_bytes(content[base : base + 4096])
            parts.append(Segment(str(path), base, 4096))
        logs.append(tuple(parts))
    own, other = logs
    assert replicas._first_difference(own, other, 6579, 6744) == where
    assert replicas._first_difference(own, other, 6579, 0) is None
    assert replicas._first_difference(own, (), 6579, 6744) is None
    later = None if where is None else max(where, 4096)
    assert replicas._first_difference(own, other[1:], 0, 6744) == later
    assert replicas._first_difference(own[1:], other, 0, 6744) == later
