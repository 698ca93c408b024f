"""Damage in the checkpoint, in any byte of a store, and in its log: ``verify`` must name just what is wrong."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import golden
from support.planting import (
    ENTRIES,
    FIRST_FILE,
    SEGMENT,
    SMALL,
    STORE,
    end_of,
    entry_at,
    flip,
    index_files,
    only,
    rewrite,
    three_a_file,
    verdicts,
)
from support.rebuilding import rebuild_here, verify_here
from support.store_builder import LogBuilder

from jobs.spark.runner import Runner

pytestmark = pytest.mark.golden


def set_checkpoint(root: Path, position: int, value: int) -> None:
    content = bytearray((root / "checkpoint").read_bytes())
    struct.pack_into(">q", content, position, value)
    (root / "checkpoint").write_bytes(content)


@pytest.mark.parametrize(("position", "value"), [(0, 1 << 60), (8, 1 << 60), (16, 1 << 60), (40, STORE.end_offset)])
def test_checkpoint_ahead(root: Path, position: int, value: int) -> None:
    """No record begins after the last byte."""
    set_checkpoint(root, position, value)
    only(root, "checkpoint_ahead", "checkpoint", position)


def test_checkpoint_that_lags_is_fine(root: Path) -> None:
    set_checkpoint(root, 40, STORE.end_offset - 1)
    assert not verdicts(root).counts
    (root / "checkpoint").write_bytes(bytes(4096))
    assert not verdicts(root, broker_version="5.5").counts


def test_checkpoint_cut_short_or_missing(root: Path) -> None:
    (root / "checkpoint").write_bytes((root / "checkpoint").read_bytes()[:10])
    assert only(root, "wrong_size", "checkpoint", None)["found"] == 10
    (root / "checkpoint").unlink()
    only(root, "missing_file", "checkpoint", None)


def test_checkpoint_ahead_of_what_a_killed_broker_dispatched(tmp_path: Path) -> None:
    """The further of queues and index counts: recovery would begin after what is missing."""
    root = three_a_file(tmp_path, 9)
    (root / "abort").touch()
    queue = sorted((root / "consumequeue" / "T" / "0").iterdir())
    (last,) = struct.unpack_from(">q", queue[1].read_bytes(), 40)
    (behind,) = struct.unpack_from(">q", queue[2].read_bytes(), 0)
    queue[2].unlink()
    index_files(root)[2].unlink()
    rewrite(index_files(root)[1], lambda entries: entries.pop() and None)  # the entry comes after the unit
    for dispatched, counts in ((last, {}), (behind, {"checkpoint_ahead": 1})):
        set_checkpoint(root, 40, dispatched)
        assert verify_here(root, SMALL).verdicts.counts == counts


def test_damage_says_nothing_of_the_checkpoint(tmp_path: Path) -> None:
    """The last record may have been the one whose time it holds."""
    root = three_a_file(tmp_path, 9, step=5_000)
    segment = max((root / "commitlog").iterdir())
    size = int.from_bytes(segment.read_bytes()[:4], "big")
    flip(segment, 2 * size + 200)
    verified = verify_here(root, SMALL, on_damage="salvage")
    assert verified.reading.damaged
    assert not verified.verdicts.counts


def test_artefacts_that_were_not_asked_for(root: Path) -> None:
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "index")
    assert not verdicts(root, only=("consumequeue",)).counts
    flip(root / FIRST_FILE, 70)
    assert verdicts(root, only=("index", "checkpoint")).counts.keys() == {"missing_file"}


@pytest.mark.parametrize("what", ["look again at what is missing", "look again at the last index file"])
@pytest.mark.parametrize("comes", [True, False])
def test_what_a_broker_writes_meanwhile_is_looked_at_again(root: Path, what: str, comes: bool) -> None:
    """It changes the files while they are read: what was not there at first may be there a moment later."""
    (root / "abort").touch()
    index = max((root / "index").iterdir())
    path, position = (index, entry_at(1) + 12) if "index" in what else (root / FIRST_FILE, 100)
    whole = path.read_bytes()
    path.write_bytes(whole[:position] + bytes(20) + whole[position + 20 :])

    class Broker(Runner):
        def map(self, doing: str, *rest: Any) -> Any:
            if doing == what and comes:
                path.write_bytes(whole)
            return super().map(doing, *rest)

    found = verify_here(root, STORE.settings, Broker()).verdicts
    assert bool(found.counts) != comes


def test_queues_that_lag_behind_the_index_are_damaged(tmp_path: Path) -> None:
    """A record comes into its queue before it comes into the index, so no lag explains that."""
    sizes = {"maxHashSlotNum": 100, "maxIndexNum": 4}
    log = LogBuilder(4096)
    for number in range(12):
        log.message(topic="T", keys=f"k{number}")
    root = log.write(tmp_path / "store")
    made = Path(rebuild_here(root, tmp_path, sizes).directory)
    for name in ("consumequeue", "index", "checkpoint"):
        (made / name).rename(root / name)
    (root / "abort").touch()
    file = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    file.write_bytes(file.read_bytes()[:80].ljust(file.stat().st_size, b"\0"))
    found = verify_here(root, sizes).verdicts
    assert found.counts == {"missing_unit": 8}
    max((root / "index").iterdir()).unlink()  # with the entries of the last three
    found = verify_here(root, sizes).verdicts
    assert found.counts == {"missing_unit": 5}
    assert any("3 messages from offset" in note for note in found.notes)


def test_a_store_with_queues_in_rocksdb_can_be_verified_without_them(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-000004\n")
    verified = verify_here(root, STORE.settings, only=("index", "checkpoint"))
    assert (verified.verdicts.counts, verified.verdicts.notes) == ({}, [])
    assert "queues" not in verified.compared


def meaningless(file: str, position: int, content: bytes) -> bool:
    """Bytes that no broker reads: entry 0 of an index file, and everything after the last entry."""
    if not file.startswith("index/"):
        return False
    (count,) = struct.unpack_from(">i", content, 36)
    return ENTRIES <= position < ENTRIES + 20 or position >= entry_at(count)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack(STORE, tmp_path_factory.mktemp("any"))


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_byte_of_a_written_part(shared: Path, data: st.DataObject) -> None:
    files = sorted(
        path.relative_to(shared).as_posix()
        for directory in ("consumequeue", "index")
        for path in (shared / directory).rglob("*")
        if path.is_file()
    )
    file = data.draw(st.sampled_from(files))
    content = (shared / file).read_bytes()
    written = len(content) if file.startswith("index/") else end_of(shared / file) if b"\0" * 20 in content else 0
    position = data.draw(st.integers(0, (written or len(content)) - 1))
    mask = data.draw(st.integers(1, 255))
    try:
        flip(shared / file, position, mask)
        found = verdicts(shared)
    finally:
        (shared / file).write_bytes(content)
    if meaningless(file, position, content):
        assert not found.counts
        return
    if any("messageDelayLevel" in note for note in found.notes):  # a delivery time moved by whole seconds
        return
    assert sum(found.counts.values()) >= 1
    assert {difference["file"] for difference in found.differences} == {file}


@pytest.mark.parametrize("name", ["base-clean-4.6.1", "base-clean-5.5.0", "retention-5.1.4", "embedded-5.3.3"])
@pytest.mark.parametrize("seed", range(4))
def test_what_damage_took_from_the_log_is_no_difference(tmp_path: Path, name: str, seed: int) -> None:
    """Queues and index still know the lost records; nothing says what these should be, so nothing contradicts them."""
    (store,) = golden.stores(name)
    root = golden.unpack(store, tmp_path)
    chosen = random.Random(seed).sample(sorted(golden.chain(root, store).items()), 3)
    size = int(store.settings[SEGMENT])
    for offset, length in chosen:
        segment = root / "commitlog" / f"{offset // size * size:020d}"
        content = bytearray(segment.read_bytes())
        content[offset % size : offset % size + length] = bytes(length)
        segment.write_bytes(content)
    verified = verify_here(root, store.settings, on_damage="salvage")
    assert verified.reading.damaged
    assert not verified.verdicts.counts
    assert any("lost to damage" in note for note in verified.verdicts.notes)
