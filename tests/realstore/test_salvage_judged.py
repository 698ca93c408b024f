"""Stores of real brokers with damage in the middle: salvaged and repaired, each survivor is served in its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.real_store import RELEASES, Opened, RealStore, Store, put_derived
from support.rebuilding import rebuild_here, rules_of_release

from jobs.rebuild.rebuild import repair_log

pytestmark = pytest.mark.realstore

SEGMENT = 65_536


@pytest.fixture(scope="module", params=RELEASES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Store]:
    directory = tmp_path_factory.mktemp(f"salvage-{request.param}")
    stores = RealStore(request.param).write(directory, 6, seed=31_000)
    return [store for store in stores if store.end_offset - store.min_offset > 2 * SEGMENT]


def damaged_copy(store: Store, root: Path) -> Path:
    """A copy of the log with a flipped bit in one segment, a destroyed stretch in the one before, and no more."""
    shutil.copytree(store.root / "commitlog", root / "commitlog")
    segments = sorted((root / "commitlog").iterdir())
    for segment, (begin, data) in zip(segments, ((20_000, bytes(700)), (30_000, b"\xff")), strict=False):
        content = bytearray(segment.read_bytes())
        content[begin : begin + len(data)] = data
        segment.write_bytes(content)
    return root


def served(opened: Opened) -> dict[tuple[str, int, int], int]:
    """Where each queue offset's message lies, by topic, queue and the offset it was pulled at."""
    places = {}
    for queue in opened.answers["queues"]:
        for number, offset in enumerate(queue["commitLogOffsets"]):
            places[queue["topic"], queue["queueId"], queue["minOffset"] + number] = offset
    return places


def test_a_broker_serves_all_survivors_of_a_repaired_log(written: list[Store], tmp_path: Path) -> None:
    assert written
    release = written[0].release
    roots, lost = [], []
    for number, store in enumerate(written):
        damaged = damaged_copy(store, tmp_path / f"{number}-damaged")
        options = {"broker_version": rules_of_release(release), "on_damage": "salvage"}
        built = rebuild_here(damaged, tmp_path / f"{number}-work", store.settings, **options)
        assert built.reading.damaged
        repaired = tmp_path / f"{number}-repaired"
        names = repair_log(built.reading, str(repaired))
        root = tmp_path / f"{number}-root"
        shutil.copytree(damaged / "commitlog", root / "commitlog")
        for name in names:
            shutil.copy(repaired / name, root / "commitlog" / name)
        put_derived(Path(built.directory), root)
        for name in ("config", "store.json"):
            if (store.root / name).is_dir():
                shutil.copytree(store.root / name, root / name)
            elif (store.root / name).exists():
                shutil.copy(store.root / name, root / name)
        roots.append(root)
        lost.append([(item.begin, item.end) for item in built.reading.damaged])
        again = rebuild_here(root, tmp_path / f"{number}-again", store.settings, only=("index",))
        assert again.reading.damaged == [], "a repaired log is whole"
    originals = [Path(shutil.copytree(store.root, tmp_path / f"{n}-theirs")) for n, store in enumerate(written)]
    real = RealStore(release)
    for ours, theirs, ranges in zip(real.open(roots), real.open(originals), lost, strict=True):
        assert ours.store.loaded
        assert ours.store.end_offset == theirs.store.end_offset, "the broker cut its log"
        alive = {key: at for key, at in served(theirs).items() if not any(begin <= at < end for begin, end in ranges)}
        found = served(ours)
        assert {key: found.get(key) for key in alive} == alive
        assert len(alive) > 50
        assert len(alive) < len(served(theirs))


def with_a_damaged_offset(store: Store, root: Path) -> Path:
    """A copy of the log in which the second record of the last segment claims to lie at 0."""
    shutil.copytree(store.root / "commitlog", root / "commitlog")
    segment = max(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()[:8]))
    content = bytearray(segment.read_bytes())
    at = int.from_bytes(content[:4], "big") + 28
    content[at : at + 8] = bytes(8)
    segment.write_bytes(content)
    return root


def test_left_alone_a_broker_deletes_what_survived(written: list[Store], tmp_path: Path) -> None:
    """Where only a record's own offset is damaged it goes on, and so does ``stop``."""
    store = written[0]
    damaged, misplaced = damaged_copy(store, tmp_path / "damaged"), with_a_damaged_offset(store, tmp_path / "misplaced")
    read = {}
    for root in (damaged, misplaced):
        options = {"broker_version": rules_of_release(store.release), "on_damage": "stop"}
        read[root] = rebuild_here(root, tmp_path / f"{root.name}-work", store.settings, **options).reading
        shutil.copy(store.root / "store.json", root / "store.json")
        (root / "abort").touch()
    opened = RealStore(store.release).open([damaged, misplaced], ask=False)
    assert [one.store.end_offset for one in opened] == [read[damaged].end, read[misplaced].end]
    assert read[damaged].end < SEGMENT < store.end_offset == read[misplaced].end
    assert not (damaged / "commitlog" / f"{SEGMENT:020d}").exists()
    assert len(read[misplaced].damaged) == 1
