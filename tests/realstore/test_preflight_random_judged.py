"""Queues, index and checkpoint damaged at random: what ``preflight`` calls safe, a real store of the release serves.

Served is what stands in the queue files when the store was open: it cuts what it does not take, and puts nothing right.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.real_store import RELEASES, RealStore
from support.store_to_start import configure
from support.wrong_stores import QUEUE_FILE, SETTINGS, UNIT, queue_units, said_of

pytestmark = pytest.mark.realstore

Units = dict[tuple[str, str, int], tuple[int, int]]
"""Offset and size of the record at each place in a queue: topic, queue id and queue offset. The store of 4.9.8 has no
delay levels yet when it recovers, so that its tags codes differ.
"""


def units_of(root: Path) -> Units:
    found: Units = {}
    for path in queue_units(root):
        topic, queue_id = path.parts[-3:-1]
        for number, unit in enumerate(UNIT.iter_unpack(path.read_bytes()), int(path.name) // 20):
            if unit[1] > 0:
                found[topic, queue_id, number] = unit[:2]
    return found


# --------------------------------------------------------------------------------------------------------------- damage
def put_unit(root: Path, draw: random.Random, unit: bytes) -> None:
    path = draw.choice(queue_units(root))
    data = path.read_bytes()
    at = draw.randrange(max(len(data.rstrip(b"\0")) // 20, 1)) * 20
    path.write_bytes((data[:at] + unit + data[at + 20 :])[: len(data)])


def zeros(root: Path, draw: random.Random) -> None:
    put_unit(root, draw, bytes(20))


def noise(root: Path, draw: random.Random) -> None:
    put_unit(root, draw, draw.randbytes(20))


def unit_of_another(root: Path, draw: random.Random) -> None:
    put_unit(root, draw, draw.choice(queue_units(root)).read_bytes()[:20])


def no_file(root: Path, draw: random.Random) -> None:
    draw.choice(queue_units(root)).unlink()


def no_queue(root: Path, draw: random.Random) -> None:
    shutil.rmtree(draw.choice(queue_units(root)).parent)


def empty_file(root: Path, draw: random.Random) -> None:
    draw.choice(queue_units(root)).write_bytes(bytes(QUEUE_FILE))


def files_changed_about(root: Path, draw: random.Random) -> None:
    one, other = draw.choice(queue_units(root)), draw.choice(queue_units(root))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def other_name(root: Path, draw: random.Random) -> None:
    path = draw.choice(queue_units(root))
    renamed = path.with_name(f"{int(path.name) + draw.choice([20, QUEUE_FILE]):020d}")
    if not renamed.exists():
        path.rename(renamed)


def older_copy(root: Path, draw: random.Random) -> None:
    """Of all queues."""
    cut = draw.choice(sorted(units_of(root).values()))[0]
    for path in queue_units(root):
        data = path.read_bytes()
        kept = [UNIT.pack(*unit) for unit in UNIT.iter_unpack(data) if unit[1] > 0 and unit[0] < cut]
        path.write_bytes(b"".join(kept).ljust(len(data), b"\0"))
        if not kept:
            path.unlink()


def crash(root: Path, draw: random.Random) -> None:
    (root / "abort").touch()


def checkpoint(root: Path, draw: random.Random) -> None:
    (root / "checkpoint").write_bytes(draw.choice([bytes(4096), draw.randbytes(4096), b""]))


def no_index(root: Path, draw: random.Random) -> None:
    for path in (root / "index").iterdir():
        if draw.random() < 0.5:
            path.unlink()


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    zeros, noise, unit_of_another, no_file, no_queue, empty_file, files_changed_about, other_name, older_copy, crash,
    checkpoint, no_index,
)  # fmt: skip


@pytest.mark.parametrize(
    ("release", "count"),
    [(RELEASES[-1], 40), *(pytest.param(release, 300, marks=pytest.mark.slow) for release in RELEASES)],
)
def test_what_is_called_safe_is_served(tmp_path: Path, release: str, count: int) -> None:
    draw, judge = random.Random(count), RealStore(release)
    (written,) = judge.write(tmp_path / "written", 1, seed=91_000, settings=SETTINGS, messages=600)
    configure(written.root)
    sound = tmp_path / "sound"
    shutil.copytree(written.root, sound)
    judge.open([sound], ask=False)
    truth = units_of(sound)
    assert len(truth) > 600
    safe: dict[Path, list[str]] = {}
    for number in range(count):
        root = tmp_path / str(number)
        shutil.copytree(written.root, root)
        damages = draw.choices(DAMAGES, k=draw.choice([1, 1, 1, 2, 3]))
        for damage in damages:
            if queue_units(root):
                damage(root, draw)
        if said_of(root, release).safe:
            safe[root] = [damage.__name__ for damage in damages]
        else:
            shutil.rmtree(root)
    assert count // 20 < len(safe) < count * 3 // 4
    for (root, names), opened in zip(safe.items(), judge.open(list(safe), ask=False), strict=True):
        assert opened.store.loaded, names
        served = units_of(root)
        assert [place for place, unit in truth.items() if served.get(place) != unit] == [], names
