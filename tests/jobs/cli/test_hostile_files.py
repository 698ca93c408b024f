"""Pipes, devices, sockets, sparse giants and loops of links in the place of files, and numbers that are damaged: one
line, at once, never a wait and never all memory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import golden
from support.drilling import run_job
from support.hostile import BATCH, INDEX_HEADER, KINDS, RECORD, UNIT, at_once, in_a_child, last_unit, overwrite, plant
from support.store_to_start import healthy_store

PLACES = [
    "commitlog", f"commitlog/{0:020d}", "consumequeue", "consumequeue/Orders/0", f"consumequeue/Orders/0/{0:020d}",
    "index", "index/*", "checkpoint", "lock", "abort", "config", "config/topics.json", "config/consumerOffset.json",
    "config/delayOffset.json.bak", "timerlog", "timerwheel", "consumequeue_ext", "batchconsumequeue", "broker.conf",
    "dledger-n0", "backup", "consumequeue/CURRENT", "config/topics/CURRENT",
]  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone makes devices")
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        pytest.param(place, kind, marks=() if kind in ("pipe", others[at % len(others)]) else pytest.mark.slow)
        for others in [[kind for kind in KINDS if kind != "pipe"]]
        for at, place in enumerate(PLACES)
        for kind in KINDS
    ],
)
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


MOST_WRITTEN = 300 << 20
VALUES = [(1 << 63) - 1, 1 << 62, -1, (1 << 31) - 1, 0]
STORES = ["base-clean-5.5.0", "batch-cq-5.3.3", "lmq-5.5.0", "retention-5.5.0", "cq-ext-5.3.3", "base-killed-4.9.8"]
JOBS = [
    ["inspect"], ["verify"], ["preflight"], ["query", "lag"], ["query", "list", "--topic", "A"],
    ["query", "time", "--topic", "A", "--queue", "0", "--time", "1700000000000"],
    ["rebuild", "--topics-json", "--output", "out"],
    ["rebuild", "--topics-json", "--on-damage", "salvage", "--output", "salvaged"],
]  # fmt: skip


def damage(draw: st.DataObject, root: Path, store: golden.GoldenStore) -> None:
    """Changes one number of a store: in a record, a unit, the header of an index file, or a name."""
    bit, value = draw.draw(st.integers(0, 62)), draw.draw(st.sampled_from([None, *VALUES]))
    queues = {"consumequeue": (20, UNIT), "batchconsumequeue": (46, BATCH)}
    places = [name for name in ("commitlog", "index", *queues) if any(root.glob(f"{name}/**/*"))]
    place = draw.draw(st.sampled_from([*places, "name"]))
    paths = sorted(path for path in root.glob("*/**/*" if place == "name" else f"{place}/**/*") if path.name.isdigit())
    path = draw.draw(st.sampled_from([path for path in paths if place == "name" or path.is_file()]))
    if place == "name":
        number = int(path.name) ^ (1 << bit) if value is None else abs(value)
        target = path.with_name(f"{number:0{len(path.name)}d}")
        if not target.exists():
            path.rename(target)
        return
    begin, fields = 0, INDEX_HEADER
    if place == "commitlog":
        offset = draw.draw(st.sampled_from(sorted(golden.chain(root, store))))
        path = max(segment for segment in path.parent.iterdir() if int(segment.name) <= offset)
        begin, fields = offset - int(path.name), RECORD
    elif place in queues:
        size, fields = queues[place]
        begin = draw.draw(st.sampled_from([0, last_unit(path, size)]))
    at, width = draw.draw(st.sampled_from(fields))
    overwrite(path, begin + at, width, lambda number: number ^ 1 << bit % (8 * width) if value is None else value)


@settings(max_examples=settings.default.max_examples // 10)
@given(data=st.data(), name=st.sampled_from(STORES), tail=st.booleans())
def test_a_damaged_number_costs_neither_the_machine_nor_a_trace(data: st.DataObject, name: str, *, tail: bool) -> None:
    (store,) = golden.stores(name)
    conf = [word for key, value in store.settings.items() for word in ("--set", f"{key}={str(value).lower()}")]
    with tempfile.TemporaryDirectory() as directory:
        root = golden.unpack(store, Path(directory) / "store")
        run_job("inspect", "--store", root, *conf)  # a child then has the compiled kernels
        damage(data, root, store)
        if tail:
            last = max((root / "commitlog").iterdir())
            last.write_bytes(last.read_bytes()[: last.stat().st_size // 2].ljust(last.stat().st_size, b"\0"))

        def work() -> None:
            os.chdir(directory)
            for words in JOBS:
                with at_once(20):
                    done = run_job(*words, "--store", root, *conf, "--quiet")
                assert done.code != 70, (words, done)
                assert "\n" not in str(done.report.get("error", "")), (words, done)
            written = sum(path.stat().st_blocks * 512 for path in Path(directory).glob("[os]*/**/*") if path.is_file())
            assert written < MOST_WRITTEN

        assert in_a_child(work) == ""
