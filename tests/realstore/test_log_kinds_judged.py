"""Random stores whose log is no plain ``commitlog/``: of a DLedger group, of one after an old commit log, and spread
over several paths, of which one may have become read-only. Rebuilt from the log alone, the files must be the brokers'
own, and the brokers must go on with them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.real_store import RELEASES, Opened, RealStore, Store, derived, differing, put_derived, wiped_copy
from support.rebuilding import rebuild_here, rules_of_release, verify_here

from jobs.contract.options import LogOptions, PublishOptions
from jobs.contract.report import Reporter
from jobs.log.opening import open_store
from jobs.publish import publish

pytestmark = pytest.mark.realstore

SPLIT_SIZES = (1 << 10, 5_000, 64 << 10, 1 << 30)
FEW, MANY = (8, 4), (25, 8)
"""Stores with entries in their log, and such with several paths."""
READ_ONLY = "commitlog-a"


@dataclass(frozen=True)
class Judged:
    """The random stores of one release, and for each the directory with what we rebuilt from its log."""

    release: str
    stores: list[Store]
    rebuilt: list[Path]
    entries: int


def kinds(number: int, entries: int) -> list[str]:
    if number >= entries:
        return ["read_only_path" if number % 2 else "multi_path"]
    return ["mixed_log" if number % 2 else "dledger"]


def judge(release: str, directory: Path, counts: tuple[int, int], seed: int) -> Judged:
    stores = RealStore(release).write(
        directory / "written", sum(counts), seed=seed, features=lambda number: kinds(number, counts[0])
    )
    rebuilt = []
    for number, store in enumerate(stores):
        log = wiped_copy(store.root, directory / "logs" / store.root.name)
        write_conf(log, read_only="readOnlyCommitLogStorePaths" in store.settings)
        split_size = random.Random(seed + number).choice(SPLIT_SIZES)
        more = {"broker_version": rules_of_release(release), "split_size": split_size}
        more["broker_conf"] = str(log / "broker.conf")
        built = rebuild_here(log, directory / "rebuilt" / store.root.name, store.settings, **more)
        assert built.reading.damaged == []
        assert built.reading.end == store.end_offset
        rebuilt.append(Path(built.directory))
    return Judged(release, stores, rebuilt, counts[0])


def write_conf(root: Path, *, read_only: bool) -> None:
    """The paths of a log in ``broker.conf``."""
    paths = [str(path) for path in sorted(root.glob("commitlog-*"))]
    settings = {"storePathCommitLog": ",".join(paths[read_only:])}
    if read_only:
        settings["readOnlyCommitLogStorePaths"] = paths[0]
    (root / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


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
    directory = tmp_path_factory.mktemp(f"dledger-{release}")
    yield judge(release, directory, counts, seed=60_000)
    shutil.rmtree(directory)


def has_old_log(store: Store) -> bool:
    return any((store.root / "commitlog").glob("0*"))


def test_files_are_those_that_the_broker_wrote(judged: Judged) -> None:
    assert {has_old_log(store) for store in judged.stores[: judged.entries]} == {True, False}
    for number, (store, rebuilt) in enumerate(zip(judged.stores, judged.rebuilt, strict=True)):
        where = (READ_ONLY, "commitlog-b") if number >= judged.entries else ("dledger-n0/data",)
        assert all(any((store.root / path).iterdir()) for path in where)
        assert differing(derived(store.root), derived(rebuilt)) == [], f"{judged.release}: {store.root}"


def test_verify_finds_nothing_wrong(judged: Judged) -> None:
    for store in judged.stores:
        paths = tuple(str(path) for path in store.root.glob("commitlog-*"))
        verified = verify_here(
            store.root, store.settings, broker_version=rules_of_release(judged.release), commitlog=paths
        )
        assert verified.verdicts.differences == [], f"{judged.release}: {store.root}"
        assert verified.compared["consume_queue_units"] > 0


def test_a_published_rebuild_of_several_paths_serves_everything(judged: Judged, tmp_path: Path) -> None:
    pairs = list(zip(judged.stores, judged.rebuilt, strict=True))[judged.entries :]
    ours = [published(store, rebuilt, tmp_path / "ours" / store.root.name) for store, rebuilt in pairs]
    theirs = [unchanged(store, tmp_path / "theirs" / store.root.name) for store, _ in pairs]
    halves = [halved(*pairs[0], tmp_path / name) for name in ("comma", "single")]
    describe_paths(halves[0], f"{halves[0]}/commitlog-new,")
    describe_paths(halves[1], f"{halves[1]}/commitlog-new")
    read_only = [{path.name for path in (root / READ_ONLY).iterdir()} for root in ours]

    opened = RealStore(judged.release).open([*ours, *theirs, *halves], put=True)
    for one, other, kept in zip(opened, opened[len(ours) : -2], read_only, strict=False):
        assert one.store.end_offset == one.store.loaded_end_offset == other.store.end_offset
        assert served(one) == served(other)
        check_all_served(one)
        if judged.release != "4.9.8":  # it searches times in the files' times of change
            assert one.answers == other.answers
        if "readOnlyCommitLogStorePaths" in one.store.settings:
            assert {path.name for path in (one.store.root / READ_ONLY).iterdir()} == kept
    both, alone = opened[-2:]
    check_all_served(both)
    for half in (both, alone):
        assert half.store.loaded
        assert all(put[-1] for put in served(half))
        assert half.store.end_offset == half.store.loaded_end_offset == pairs[0][0].end_offset
    # As the report says of such settings: without a comma a broker has not looked at the read-only path.
    assert (both.store.min_offset, alone.store.min_offset > 0) == (0, True)


def published(store: Store, rebuilt: Path, root: Path, paths: str = "commitlog-*") -> Path:
    """A copy of a store's log with what was rebuilt of it, put there by ``publish``."""
    if not root.exists():
        wiped_copy(store.root, root)
    made = shutil.copytree(rebuilt, root.with_name(f"{root.name}-rebuilt"))
    named = tuple(str(path) for path in sorted(root.glob(paths)))
    options = PublishOptions(store=str(root), rebuilt=str(made), commitlog=named, after_crash=True)
    publish.run(options, Reporter(quiet=True))
    assert not (root / "abort").exists()
    return root


def unchanged(store: Store, root: Path) -> Path:
    """A copy of a store with its own queues and index, as a clean shutdown left it."""
    wiped_copy(store.root, root)
    (root / "abort").unlink()
    put_derived(store.root, root)
    return root


def halved(store: Store, rebuilt: Path, root: Path) -> Path:
    """The same with the first half of the segments in ``commitlog-old`` and the others in ``commitlog-new``."""
    wiped_copy(store.root, root)
    segments = sorted((path for path in root.glob("commitlog-*/*")), key=lambda path: path.name)
    for number, segment in enumerate(segments):
        target = root / ("commitlog-new" if 2 * number >= len(segments) - 1 else "commitlog-old") / segment.name
        target.parent.mkdir(exist_ok=True)
        segment.rename(target)
    return published(store, rebuilt, root, "commitlog-[no]*")


def describe_paths(root: Path, writable: str) -> None:
    """Has the broker open the halved store with these settings."""
    description = json.loads((root / "store.json").read_text())
    paths = {"storePathCommitLog": writable, "readOnlyCommitLogStorePaths": f"{root}/commitlog-old"}
    description["settings"] |= paths
    (root / "store.json").write_text(json.dumps(description))
    notes = open_store(LogOptions(store=str(root), settings=tuple(paths.items())), needs_index_sizes=False).notes
    assert any("does not serve" in note for note in notes) == ("," not in writable)


def check_all_served(opened: Opened) -> None:
    """Every message of every queue, and those put after them."""
    assert opened.store.loaded
    assert all(put[-1] for put in served(opened))
    assert all("notFoundAt" not in queue for queue in opened.answers["queues"])


def test_files_are_those_that_the_broker_recovers(judged: Judged, tmp_path: Path) -> None:
    """Of a log that begins with entries: a broker never goes back into the old log before them."""
    if judged.release == "5.1.4":
        pytest.skip("5.1.4 does not dispatch entries again when it starts: what is lost stays lost")
    pairs = list(zip(judged.stores, judged.rebuilt, strict=True))[: judged.entries : 2]
    copies = [wiped_copy(store.root, tmp_path / store.root.name) for store, _ in pairs]
    for recovered, (_, rebuilt) in zip(RealStore(judged.release).recover(copies), pairs, strict=True):
        theirs, ours = derived(recovered.root), derived(rebuilt)
        if judged.release == "4.9.8":
            # As in a log without entries: its recovery runs before the delay table is loaded.
            for files in (theirs, ours):
                for name in [name for name in files if name.startswith("consumequeue/SCHEDULE_TOPIC_XXXX/")]:
                    del files[name]
        assert differing(theirs, ours) == [], f"{judged.release}: {recovered.root}"


def test_the_broker_goes_on_with_the_files(judged: Judged, tmp_path: Path) -> None:
    some = slice(0, 6)
    roots = []
    for store, rebuilt in zip(judged.stores[some], judged.rebuilt[some], strict=True):
        root = wiped_copy(store.root, tmp_path / "ours" / store.root.name)
        (root / "abort").unlink()
        put_derived(rebuilt, root)
        roots.append(root)
    before = [derived(root) for root in roots]
    originals = [
        Path(shutil.copytree(store.root, tmp_path / "theirs" / store.root.name)) for store in judged.stores[some]
    ]
    opened = RealStore(judged.release).open([*roots, *originals], put=True, ask=False)
    ours, theirs = opened[: len(roots)], opened[len(roots) :]
    for one, other, files in zip(ours, theirs, before, strict=True):
        assert one.store.loaded
        assert one.store.end_offset == other.store.end_offset
        assert served(one) == served(other)
        after = derived(one.store.root)
        assert set(files) <= set(after)


def served(opened: Opened) -> list[tuple[str, int, int, int, bool]]:
    """Where the next message of each queue went, and whether it could be read back."""
    assert opened.puts
    names = ("topic", "queueId", "queueOffset", "commitLogOffset", "served")
    return [tuple(put[name] for name in names) for put in opened.puts]


@pytest.mark.parametrize("release", RELEASES)
def test_halted_members_verify(release: str, tmp_path: Path) -> None:
    """Their checkpoint is older than what they dispatched."""
    for store in RealStore(release).write(tmp_path, 5, seed=61_000, features=["dledger"], halt=True):
        assert (store.root / "abort").exists()
        verified = verify_here(store.root, store.settings, broker_version=rules_of_release(release))
        assert verified.verdicts.differences == [], f"{release}: {store.root}"
        assert verified.reading.end == store.end_offset
