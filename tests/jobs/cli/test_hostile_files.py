"""Pipes, devices, sockets, sparse giants and loops of links in the place of files: one line, at once, never a wait."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.drilling import run_job
from support.store_to_start import healthy_store

LIMIT_S = 4
"""Twice what is promised: other tests run beside these."""


def giant(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 5)),
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o644),
    "giant": giant,
    "loop": lambda path: path.symlink_to(path.name),
}
PLACES = [
    "commitlog", f"commitlog/{0:020d}", "consumequeue", "consumequeue/Orders/0", f"consumequeue/Orders/0/{0:020d}",
    "index", "index/*", "checkpoint", "lock", "abort", "config", "config/topics.json", "config/consumerOffset.json",
    "config/delayOffset.json.bak", "timerlog", "timerwheel", "consumequeue_ext", "batchconsumequeue", "broker.conf",
    "dledger-n0", "backup", "consumequeue/CURRENT", "config/topics/CURRENT",
]  # fmt: skip


@contextmanager
def at_once() -> Iterator[None]:
    def late(*unused: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def plant(root: Path, place: str, kind: str) -> None:
    path = next(iter(sorted(root.glob(place))), root / place)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    KINDS[kind](path)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone makes devices")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_regular_file_is_named_at_once(place: str, kind: str, tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store")
    conf = store.root / "broker.conf"
    conf.write_text("".join(f"{name}={text}\n" for name, text in store.conf.items()))
    plant(store.root, place, kind)
    parts = "consumequeue,index,checkpoint,consumer-offsets,timers"
    for words in (
        ["preflight"], ["verify"], ["inspect"], ["query", "lag"],
        ["rebuild", "--only", parts, "--output", tmp_path / "out"],
    ):  # fmt: skip
        with at_once():
            done = run_job(*words, "--store", store.root, "--broker-conf", conf, "--broker-version", "5.3", "--quiet")
        assert done.code in (0, 1, 2, 65, 66), (words, done)
        assert "\n" not in str(done.report.get("error", "")), (words, done)


@pytest.mark.parametrize("name", ["lock", "checkpoint", "abort"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "directory"])
def test_a_broker_does_not_start_with_one(name: str, kind: str, tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store")
    (store.root / name).unlink(missing_ok=True)
    {**KINDS, "directory": Path.mkdir}[kind](store.root / name)
    what = "a directory" if kind == "directory" else "no regular file"
    reason = store.only_reason("stray_file")
    assert reason.what == f"{store.root / name} is {what}, where the broker opens a file: it does not start"
    assert reason.unsafe
