"""Random stores that real brokers write: rebuilt from the log alone, the files must be the brokers' own, and the
brokers must take them for their own. Most have every kind of queue and record that the release knows.
"""

from __future__ import annotations

import bisect
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.real_store import FEATURES, RELEASES, Opened, RealStore, Store, derived, differing, put_derived, wiped_copy
from support.rebuilding import options_for, rebuild_here, rules_of_release

from jobs.log.opening import open_store
from jobs.query.offline_store import OfflineStore

pytestmark = pytest.mark.realstore

FEW, MANY = (10, 2), (25, 5)
"""Stores with every kind of queue and record that a release knows, and plain ones."""
SPLIT_SIZES = (1 << 10, 5_000, 64 << 10, 1 << 30)


@dataclass(frozen=True)
class Judged:
    release: str
    stores: list[Store]
    rebuilt: list[Path]
    every_kind: int


def kinds_of(release: str, number: int, every_kind: int) -> tuple[str, ...]:
    """Names that are hard on a file system in every second store, a clock that is set back in every third."""
    odd = [name for every, name in ((2, "odd_names"), (3, "unsteady_clock")) if number % every == 0]
    return (*(FEATURES[release] if number < every_kind else ()), *odd)


def judge(release: str, directory: Path, counts: tuple[int, int], seed: int) -> Judged:
    every_kind = counts[0]
    stores = RealStore(release).write(
        directory / "written", sum(counts), seed=seed, features=lambda number: kinds_of(release, number, every_kind)
    )
    rebuilt = []
    for number, store in enumerate(stores):
        log = directory / "logs" / store.root.name
        shutil.copytree(store.root / "commitlog", log / "commitlog")
        split_size = random.Random(seed + number).choice(SPLIT_SIZES)
        more = {"broker_version": rules_of_release(release), "split_size": split_size}
        built = rebuild_here(log, directory / "rebuilt" / store.root.name, store.settings, **more)
        assert built.reading.damaged == []
        rebuilt.append(Path(built.directory))
    return Judged(release, stores, rebuilt, every_kind)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((release, counts), id=f"{release}-{sum(counts)}", marks=pytest.mark.slow if counts == MANY else ())
        for release in RELEASES
        for counts in (FEW, MANY)
    ],
)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    release, counts = request.param
    directory = tmp_path_factory.mktemp(f"judged-{release}")
    yield judge(release, directory, counts, seed=20_000)
    shutil.rmtree(directory)


def check_written(judged: Judged) -> None:
    kinds: list[set[str]] = []
    for store, rebuilt in zip(judged.stores, judged.rebuilt, strict=True):
        ours = derived(rebuilt)
        assert differing(derived(store.root), ours) == [], f"{judged.release}: {store.root}"
        kinds.append({name.split("/")[0] for name in ours} | {name[:17] for name in ours if "/%LMQ%" in name})
    for number, found in enumerate(kinds):
        has = kinds_of(judged.release, number, judged.every_kind)
        assert {"consumequeue", "index"} <= found
        assert ("consumequeue/%LMQ" in found, "consumequeue_ext" in found) == ("lmq" in has, "cq_ext" in has)
        assert ("batchconsumequeue" in found) == ("batch_cq" in has)


def test_files_are_those_that_the_broker_wrote(judged: Judged) -> None:
    check_written(judged)


OTHER_RELEASES = ("4.6.0", "4.6.1", "4.7.0", "4.7.1", "4.8.0", "4.9.0", "4.9.1", "4.9.4")


@pytest.mark.parametrize("release", OTHER_RELEASES)
def test_files_are_those_that_an_old_broker_wrote(release: str, tmp_path: Path) -> None:
    """Up to 4.7.0 the heads of index files count every put; up to 4.9.0 properties are split at every separator."""
    written = judge(release, tmp_path, (10, 0), seed=30_000)
    check_written(written)
    if rules_of_release(release) == "4.8":
        for nearest in ("4.6", "4.9"):
            assert sum(rebuilds_as(nearest, store, tmp_path / nearest) for store in written.stores[:5]) < 5


def rebuilds_as(version: str, store: Store, work: Path) -> bool:
    """Whether the rules of another release give a store's own files, too."""
    built = rebuild_here(store.root, work / store.root.name, store.settings, broker_version=version)
    return differing(derived(store.root), derived(Path(built.directory))) == []


def test_files_are_those_that_the_broker_recovers(judged: Judged, tmp_path: Path) -> None:
    copies = [wiped_copy(store.root, tmp_path / store.root.name) for store in judged.stores]
    for recovered, rebuilt in zip(RealStore(judged.release).recover(copies), judged.rebuilt, strict=True):
        theirs, ours = derived(recovered.root), derived(rebuilt)
        if judged.release == "4.9.8":
            # Its recovery runs before the delay table is loaded and writes tag hashes for delivery times; what it
            # wrote when it was alive is compared above.
            theirs, ours = without_delivery_times(theirs), without_delivery_times(ours)
        assert differing(theirs, ours) == [], f"{judged.release}: {recovered.root}"


def without_delivery_times(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files but those of the schedule topic, and light queues, which hold its records too, without tags codes."""
    kept = {}
    for name, data in files.items():
        topic = name.split("/")[1]
        if topic.startswith("%LMQ%") or topic == "not-light":
            kept[name] = b"".join(data[at : at + 12] for at in range(0, len(data), 20))
        elif topic != "SCHEDULE_TOPIC_XXXX":
            kept[name] = data
    return kept


def test_the_broker_takes_the_files_for_its_own(judged: Judged, tmp_path: Path) -> None:
    roots = []
    for store, rebuilt in zip(judged.stores, judged.rebuilt, strict=True):
        root = tmp_path / "ours" / store.root.name
        shutil.copytree(store.root / "commitlog", root / "commitlog")
        put_derived(rebuilt, root)
        shutil.copy(store.root / "store.json", root)
        roots.append(root)
    originals = [Path(shutil.copytree(store.root, tmp_path / "theirs" / store.root.name)) for store in judged.stores]
    for theirs, ours in zip(originals, roots, strict=True):
        take_times(theirs, ours)
    broker = RealStore(judged.release)

    before = [derived(root) for root in roots]
    for root, files, opened in zip(roots, before, broker.open(roots, ask=False), strict=True):
        assert opened.store.loaded
        assert opened.store.end_offset == opened.store.loaded_end_offset
        assert differing(files, derived(root)) == [], f"{judged.release}: {root}: a clean start changed files"

    opened = broker.open(roots, put=True)
    for theirs, ours in zip(broker.open(originals, put=True), opened, strict=True):
        assert ours.store.end_offset == theirs.store.end_offset
        assert served(ours) == served(theirs)
        assert ours.answers == theirs.answers
    for store, answered in zip(judged.stores, opened, strict=True):
        check_batch_queries(store, answered)
    for store, answered in list(zip(judged.stores, opened, strict=True))[:2]:
        check_upper_boundary(store, answered)


def check_upper_boundary(store: Store, opened: Opened) -> None:
    """What a broker answers about the last message not after a time, in its plain queues whose times ascend."""
    version = rules_of_release(store.release)
    offline = OfflineStore(open_store(options_for(store.root, store.root, store.settings, broker_version=version)))
    asked = 0
    for queue in opened.answers["queues"]:
        if version < "5" or queue["topic"] in store.settings.get("batch_topics", ()):
            continue
        place = queue["topic"], queue["queueId"]
        stored = [offline.store_time(*unit) for unit in zip(queue["commitLogOffsets"], queue["sizes"], strict=True)]
        if stored != sorted(stored):
            continue
        for time, expected in zip(opened.answers["times"], queue["upperOffsetByTime"], strict=True):
            assert offline.offset_by_time(*place, time, upper=True)["queue_offset"] == expected, (place, time)
            asked += 1
    assert asked > 100 or version < "5"


def check_batch_queries(store: Store, opened: Opened) -> None:
    """What a broker answers about its batch queues, ``query`` answers, too, but for times: there the broker ends its
    search with the file that began before.
    """
    version = rules_of_release(store.release)
    offline = OfflineStore(open_store(options_for(store.root, store.root, store.settings, broker_version=version)))
    for queue in opened.answers["queues"]:
        if queue["topic"] not in store.settings.get("batch_topics", ()):
            continue
        begin, end, firsts = queue["minOffset"], queue["maxOffset"], queue["queueOffsets"]
        with offline.view(queue["topic"], queue["queueId"]) as view:
            assert (view.begin, view.end) == (begin, end)
            for offset in range(begin - 1, end + 1):
                unit = view.unit(offset)
                number = bisect.bisect_right(firsts, offset) - 1
                expected = (queue["commitLogOffsets"][number], queue["sizes"][number])
                found = None if unit is None else (unit["phy_offset"], unit["size"])
                assert found == (expected if begin <= offset < end else None)


def take_times(target: Path, source: Path) -> None:
    """For 4.9.8, which searches by times of change: those of the originals fit no message, their clock was shifted."""
    for path in (source / "consumequeue").rglob("*"):
        if path.is_file():
            shutil.copystat(path, target / path.relative_to(source))


def served(opened: Opened) -> list[tuple[str, int, int, bool]]:
    """Where the next message of each queue went, and whether it could be read back."""
    assert opened.puts
    return [(put["topic"], put["queueId"], put["queueOffset"], put["served"]) for put in opened.puts]


@pytest.mark.slow
@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_thousands_of_queue_ids(release: str, tmp_path: Path) -> None:
    """From 0 to 65,535; a broker maps a file for each, and a process of Linux has 65,530 maps."""
    broker = RealStore(release)
    (store,) = broker.write(
        tmp_path / "written", 1, seed=50_000, features=["many_queues"], messages=8_000,
        settings={"mappedFileSizeConsumeQueue": 100},
    )  # fmt: skip
    ids = {queue.queue_id for queue in store.queues}
    assert len(ids) > 6_000
    assert max(ids) > 65_500
    root = wiped_copy(store.root, tmp_path / "ours")
    built = Path(
        rebuild_here(root, tmp_path / "work", store.settings, broker_version=rules_of_release(release)).directory
    )
    files = derived(built)
    assert differing(derived(store.root), files) == []
    (root / "abort").unlink()
    put_derived(built, root)
    (opened,) = broker.open([root], ask=False)
    assert opened.store.loaded
    assert opened.store.queues == store.queues
    assert differing(files, derived(root)) == []


@pytest.mark.slow
@pytest.mark.parametrize("release", [*RELEASES, "4.6.1", "4.8.0"])
def test_many_more_stores(release: str, tmp_path: Path) -> None:
    for round_number in range(10):
        directory = tmp_path / str(round_number)
        check_written(judge(release, directory, (25, 0), seed=500_000 + 25 * round_number))
        shutil.rmtree(directory)
