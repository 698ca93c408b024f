"""Salvaged stores, delay offsets and verify, judged by the real store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.real_store import FEATURES, RELEASES, Opened, RealStore, Store, put_derived, wiped_copy
from support.rebuilding import preflight_here, rebuild_here, rules_of_release, verify_here
from support.store_builder import overwrite_log
from support.store_to_start import as_fastjson

from jobs.preflight.stopped_store import Reason
from jobs.rebuild.rebuild import repair_log

pytestmark = pytest.mark.realstore


# ------------------------------------------------------------------------------------------------------- salvage judged
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
        overwrite_log(root / "commitlog", int(segment.name) + begin, data)
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
    second = int(segment.name) + int.from_bytes(segment.read_bytes()[:4], "big")
    overwrite_log(root / "commitlog", second + 28, bytes(8))
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


# ------------------------------------------------------------------------------------------------- delay offsets judged
SETTINGS = {"mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 400, "messageIndexEnable": False}
AHEAD = 7


def reason_of(root: Path, release: str) -> Reason:
    reasons = preflight_here(root, {**SETTINGS, "fileReservedTime": 99_999}, release).reasons
    return next(reason for reason in reasons if reason.rule == "delay_offset_beyond_queue")


@pytest.mark.parametrize("release", ["4.8.0", "4.9.8"])
def test_a_level_beyond_its_queue(release: str, tmp_path: Path) -> None:
    """4.9.8 sets the level back to the end of its queue; 4.8.0 lets it skip what is sent."""
    judge = RealStore(release)
    (written,) = judge.write(tmp_path / "written", 1, seed=80_000, settings=SETTINGS, messages=200)
    end = next(
        (queue.max_offset for queue in written.queues if (queue.topic, queue.queue_id) == ("SCHEDULE_TOPIC_XXXX", 0)), 0
    )
    roots = {}
    for name, offset in (("healthy", end), ("ahead", end + AHEAD), ("cured", end)):
        roots[name] = tmp_path / name
        shutil.copytree(written.root, roots[name])
        (roots[name] / "config").mkdir(exist_ok=True)
        (roots[name] / "config" / "delayOffset.json").write_text(as_fastjson({"offsetTable": {1: offset}}))
    reason = reason_of(roots["ahead"], release)
    corrects = release == "4.9.8"
    assert reason.unsafe is not corrects
    assert (reason.values["offset"], reason.values["right"]) == (end + AHEAD, end)
    assert f"set 1:{end + AHEAD} to 1:{end}" in reason.cure
    assert judge.delivers(list(roots.values())) == [True, corrects, True]


# -------------------------------------------------------------------------------------------------------- verify judged
def complaints(release: str, stores: list[Store], *expected: str) -> list[str]:
    found = []
    for store in stores:
        verified = verify_here(store.root, store.settings, broker_version=rules_of_release(release))
        assert verified.compared["consume_queue_units"] > 0
        found += [f"{store.root.name}: {difference}" for difference in verified.verdicts.differences]
        hazards = verified.verdicts.hazards
        found += [f"{store.root.name}: {hazard}" for hazard in hazards if hazard["hazard"] not in expected]
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_written_and_shut_down(release: str, tmp_path: Path) -> None:
    """Plain stores, and two with each feature that the release has."""
    with_features = [feature for feature in FEATURES[release] for _ in range(2)]
    stores = RealStore(release).write(
        tmp_path, 6 + len(with_features), seed=40_000, features=lambda number: with_features[number : number + 1]
    )
    assert complaints(release, stores) == []


@pytest.mark.parametrize("release", RELEASES)
def test_halted_and_opened_again(release: str, tmp_path: Path) -> None:
    """The broker recovers from its abort file, indexes the last record again, and takes new messages."""
    judge = RealStore(release)
    stores = judge.write(tmp_path, 5, seed=42_000, halt=True)
    assert complaints(release, stores) == []
    judge.open([store.root for store in stores], put=True)
    # 5.5.0 now and then loses the newest part of its index here and begins again with a segment: it is named.
    assert complaints(release, stores, "index_gap") == []


@pytest.mark.parametrize("release", RELEASES)
def test_recovered_by_the_broker_itself(release: str, tmp_path: Path) -> None:
    judge = RealStore(release)
    written = judge.write(tmp_path / "written", 5, seed=43_000)
    copies = [wiped_copy(store.root, tmp_path / "wiped" / store.root.name) for store in written]
    assert complaints(release, judge.recover(copies)) == []
