"""What ``preflight`` says of stores as brokers leave them, of one in use, and of a queue with an empty last file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.real_store import RELEASES, RealStore, RealStoreFailed
from support.store_to_start import configure, lock_held
from support.verifying import preflight_here
from support.wrong_stores import QUEUE_FILE, SEGMENT, SETTINGS, cut_units, said_of, served

from storeformat.storage import local_status

pytestmark = pytest.mark.realstore


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("halt", [False, True], ids=["stopped", "killed"])
def test_healthy_stores_are_safe(release: str, halt: bool, tmp_path: Path) -> None:
    for store in RealStore(release).write(tmp_path, 8, seed=78_000 + halt, halt=halt):
        configure(store.root)
        answer = preflight_here(store.root, store.settings, release)
        assert answer.safe, (store.root.name, answer.lines())


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_members_of_a_group_are_safe(release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_status, "space_of", lambda path: local_status.Space(1 << 40, 1 << 39, 1 << 39))
    for store in RealStore(release).write(tmp_path, 3, seed=78_500, features=["dledger"]):
        configure(store.root)
        answer = preflight_here(store.root, store.settings, release)
        assert answer.first_line == "safe to start", answer.lines()


@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_a_store_in_use(release: str, tmp_path: Path) -> None:
    (written,) = RealStore(release).write(tmp_path, 1, seed=79_500, settings=SETTINGS, messages=30)
    configure(written.root)
    with lock_held(written.root):
        assert [reason.rule for reason in said_of(written.root, release).reasons] == ["store_in_use"]
        with pytest.raises(RealStoreFailed, match="Lock failed"):
            RealStore(release).open([written.root])
    assert said_of(written.root, release).safe
    assert RealStore(release).open([written.root])[0].store.loaded


def with_an_empty_last_file(root: Path, queue: tuple[str, int], offsets: list[int]) -> tuple[Path, int]:
    """Cuts log and queues where a queue's last file would begin, and makes it; returns it, and the queue's end."""
    end = (len(offsets) - 1) // (QUEUE_FILE // 20) * (QUEUE_FILE // 20)
    cut_units(root, offsets[end])
    for path in sorted((root / "commitlog").iterdir()):
        path.write_bytes(path.read_bytes()[: max(offsets[end] - int(path.name), 0)].ljust(SEGMENT, b"\0"))
    made = root / "consumequeue" / queue[0] / str(queue[1]) / f"{end * 20:020d}"
    made.write_bytes(bytes(QUEUE_FILE))
    return made, end


@pytest.mark.parametrize("release", RELEASES)
def test_an_empty_last_file_of_a_queue(release: str, tmp_path: Path) -> None:
    """The next message gets an offset that is one too high."""
    judge = RealStore(release)
    (written,) = judge.write(tmp_path / "written", 1, seed=79_600, settings=SETTINGS, messages=250)
    configure(written.root)
    shutil.copytree(written.root, tmp_path / "asked")
    all_served = served(judge.open([tmp_path / "asked"])[0])
    queue = max(all_served, key=lambda key: len(all_served[key]))
    got: dict[str, int | None] = {}
    for name in ("against", "cured"):
        root = tmp_path / name
        shutil.copytree(written.root, root)
        made, end = with_an_empty_last_file(root, queue, all_served[queue])
        said = {reason.rule for reason in said_of(root, release).reasons if reason.unsafe}
        assert said == {"queue_files"}
        if name == "cured":
            made.unlink()
            assert said_of(root, release).safe
        try:
            puts = judge.open([root], put=True, ask=False)[0].puts
        except RealStoreFailed:
            puts = []
        got[name] = next((put["queueOffset"] - end for put in puts if (put["topic"], put["queueId"]) == queue), None)
    assert got == {"against": 1, "cured": 0}
