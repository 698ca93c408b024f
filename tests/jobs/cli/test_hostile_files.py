"""Pipes, devices, sockets, sparse giants and loops of links in the place of files: one line, at once, never a wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.drilling import run_job
from support.hostile import KINDS, at_once, plant
from support.store_to_start import healthy_store

PLACES = [
    "commitlog", f"commitlog/{0:020d}", "consumequeue", "consumequeue/Orders/0", f"consumequeue/Orders/0/{0:020d}",
    "index", "index/*", "checkpoint", "lock", "abort", "config", "config/topics.json", "config/consumerOffset.json",
    "config/delayOffset.json.bak", "timerlog", "timerwheel", "consumequeue_ext", "batchconsumequeue", "broker.conf",
    "dledger-n0", "backup", "consumequeue/CURRENT", "config/topics/CURRENT",
]  # fmt: skip


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
