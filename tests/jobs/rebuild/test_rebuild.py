"""What a rebuild refuses before it reads the log, and what it makes sure of after it has written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.reading import queue_offsets, rebuilt
from support.store_builder import LogBuilder

from jobs.contract.options import RebuildOptions
from jobs.contract.reporter import Reporter
from jobs.rebuild import build_store, rebuild
from storeformat.errors import Refused, StoreFormatError, TotalsDisagree, UsageError, WriteFailed
from storeformat.queues.consume_queue import pack_units
from storeformat.queues.topic_filter import TopicFilter
from storeformat.storage.extents import Content
from udfs.files.output_files import SCHEMA, Totals, file_row

TOPIC = (TopicFilter("T"),)


def error_of(call: Callable[[], object]) -> tuple[type[StoreFormatError], str, str | None]:
    with pytest.raises(StoreFormatError) as caught:
        call()
    return type(caught.value), str(caught.value), caught.value.advice


@pytest.fixture
def options(tmp_path: Path) -> RebuildOptions:
    log = LogBuilder(4096)
    for _ in range(5):
        log.message(topic="T", queue_id=3)
    return RebuildOptions(store=str(log.write(tmp_path / "s")), output=str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topics_json": True, "topics": TOPIC}, "--topics-json needs the consume queues of all topics"),
        ({"topics_json": True, "only": ("index",)}, "--topics-json needs the consume queues of all topics"),
        ({"consumer_offsets_at": 0}, "--consumer-offsets-at needs consumer-offsets in --only"),
        ({"queue_store": "file", "only": ("index",)}, "--queue-store is for consume queues, which --only leaves out"),
        (
            {"queue_store": "rocksdb", "topics": TOPIC},
            "--topic selects queues in files: a RocksDB database holds those of all topics",
        ),
        (
            {"queue_store": "rocksdb", "output": "s3://b/out"},
            "RocksDB queues need an --output on a file system: no database can be made in a bucket",
        ),
        ({"output": "s3://b"}, "s3://b: name a directory in the bucket"),
        (
            {"repair_log": "/elsewhere"},
            "--repair-log needs --on-damage salvage or a --replica: it makes a log that a broker can read past damage",
        ),
        *(
            (
                {"repair_log": place, "on_damage": "salvage"},
                "--repair-log and --output must be two directories, neither inside the other",
            )
            for place in ("OUT", "OUT/log", "OUT/..")
        ),
    ],
)
def test_options_that_do_not_go_together(options: RebuildOptions, changes: dict[str, Any], said: str) -> None:
    if "repair_log" in changes:
        changes = {**changes, "repair_log": changes["repair_log"].replace("OUT", options.output)}
    asked = replace(options, **changes)
    assert error_of(lambda: rebuild.run(asked, Reporter(quiet=True))) == (UsageError, said, None)


@pytest.mark.parametrize("inside", ["new", "commitlog/new"])
def test_an_output_inside_of_the_store(options: RebuildOptions, inside: str) -> None:
    output = f"{options.store}/{inside}"
    said = f"the output must not lie inside the store ({output})"
    advice = "rebuild beside it, then publish"
    assert error_of(lambda: rebuild.run(replace(options, output=output), Reporter(quiet=True))) == (
        Refused, said, advice,
    )  # fmt: skip
    log = {"on_damage": "salvage", "repair_log": output}
    assert error_of(lambda: rebuild.run(replace(options, **log), Reporter(quiet=True))) == (  # type: ignore[arg-type]
        Refused, said, advice,
    )  # fmt: skip


def rows(*given: tuple[str, int]) -> pa.Table:
    files = [file_row(path, Content(count, count - 1, bytes(32)), Totals(count, 5)) for path, count in given]
    return pa.Table.from_pylist(files, SCHEMA)


def test_files_that_do_not_hold_what_the_log_has() -> None:
    made = rows(("a", 1), ("b", 2))
    build_store.check_rows("index", made, [("a", 1), ("b", 2)])
    for wanted, path, found, expected in (
        ([("a", 1)], "b", 2, None),
        ([("a", 1), ("b", 3)], "b", 2, ("b", 3)),
        ([("a", 1), ("x", 2)], "b", 2, ("x", 2)),
        ([("a", 1), ("b", 2), ("c", 3)], "c", None, ("c", 3)),
    ):
        with pytest.raises(TotalsDisagree) as caught:
            build_store.check_rows("index", made, wanted)
        assert (caught.value.what, caught.value.path, caught.value.found, caught.value.expected) == (
            "the index files do not match the log", path, found, expected,
        )  # fmt: skip
    build_store.check_offsets("index", made, 10)
    said = "the offsets in the index files do not add up: found 10, expected 8"
    assert error_of(lambda: build_store.check_offsets("index", made, 8)) == (TotalsDisagree, said, None)


def test_what_this_process_sees_is_what_tasks_wrote(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12")
    (tmp_path / ".claim-1").touch()
    build_store.check_all_there(str(tmp_path), rows(("a", 2)))
    advice = "every machine of the cluster must see the output, and nothing else may write to it"
    what = "output file differs from what the task wrote"
    for given, path, found, expected in (
        (rows(("a", 3)), "a", "2", "3"),
        (rows(("a", 2), ("b", 5)), "b", "no file", "5"),
        (rows(), "a", "2", "no file"),
    ):
        said = f"{what}: found {found}, expected {expected} ({tmp_path}/{path})"
        assert error_of(
            lambda given=given: build_store.check_all_there(str(tmp_path), given)  # type: ignore[misc]
        ) == (WriteFailed, said, advice)


@pytest.mark.parametrize("units", [[0, 1, 2, 3, 5], [3, 4, 5], []])
def test_a_queue_that_has_old_messages_before_new_ones_was_not_deleted(tmp_path: Path, units: list[int]) -> None:
    """Message 3 has queue offset 0 again; to a broker that lost its counter message 4 is in the queue already."""
    log = LogBuilder(4096)
    placed = [log.message(topic="T", queue_offset=number).offset for number in (0, 1, 2, 0, 1, 4)]
    file = log.write(tmp_path / "s") / "consumequeue/T/0" / f"{0:020d}"
    file.parent.mkdir(parents=True)
    size = [1] * len(units)
    file.write_bytes(pack_units([placed[one] for one in units], size, size).tobytes() + bytes(20))
    assert queue_offsets(rebuilt(tmp_path / "s", tmp_path / "work")) == [placed[one] for one in units or [3, 4, 5]]
