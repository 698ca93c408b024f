"""A log that a broker is writing: where it ends now, and that nothing after that is read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import golden
from support.golden import GoldenStore
from support.rebuilding import options_for, rebuild_here

from jobs.log.opening import OpenedStore, open_store
from storeformat.log.log_end import growing_log_end
from storeformat.storage.broker_lock import is_live

HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "r+b")
fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
input()
"""


def opened(store: GoldenStore, root: Path) -> OpenedStore:
    return open_store(options_for(root, root.parent / "none", store.settings, broker_version="5.3"))


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[GoldenStore, Path]]:
    """A store whose lock another process holds, as a broker's does."""
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store, tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield store, root
        holder.communicate("\n")


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(), ids=str)
def test_end_of_every_store(store: GoldenStore) -> None:
    """Zeros, unwritten segments and bytes of older logs lie after it; it is where the broker's log ended."""
    found = opened(store, golden.unpack(store))
    assert growing_log_end(found.segments, found.decode_rules()) == store.end_offset


def test_log_that_is_not_written_has_no_such_end(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store, tmp_path)
    assert not is_live(str(root / "lock"))
    assert opened(store, root).until(None) is None
    assert opened(store, root).until(77) == 77


def test_log_of_a_live_broker_ends_where_it_ends_now(held: tuple[GoldenStore, Path]) -> None:
    store, root = held
    assert is_live(str(root / "lock"))
    assert opened(store, root).until(None) == store.end_offset
    assert opened(store, root).until(77) == 77


def test_half_a_record_at_the_end_is_no_damage(held: tuple[GoldenStore, Path], tmp_path: Path) -> None:
    store, root = held
    last = max((root / "commitlog").iterdir())
    content = bytearray(last.read_bytes())
    size = int.from_bytes(content[:4], "big")
    at = store.end_offset - int(last.name)
    content[at : at + size // 2] = content[: size // 2]
    last.write_bytes(content)
    built = rebuild_here(root, tmp_path / "work", store.settings)
    assert built.reading.end == store.end_offset
    assert built.reading.damaged == []
    assert built.reading.records == store.entry["counts"]["messages"]
