"""What a manifest says of a rebuild, and which parts of a store it replaces."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from support.publishing import QUIET
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder

from jobs.contract.options import ARTEFACTS, TopicFilter
from jobs.rebuild.manifest import Manifest, fetch, read_manifest
from storeformat.errors import NotAStore, Refused
from storeformat.storage.extents import Content

ALL = tuple(ARTEFACTS)


def manifest(*paths: str, **changes: Any) -> Manifest:
    facts = {
        "digest": "", "log_begin": 0, "log_end": 100, "broker_version": "5.3", "on_damage": "fail", "damaged_ranges": 0,
        "artefacts": ALL, "topics": (), "settings": {},
    }  # fmt: skip
    return Manifest(**{**facts, **changes}, files={path: Content(6_000_000, 1, bytes(32)) for path in paths})


def test_only_all_of_all_topics_is_the_whole() -> None:
    assert manifest().whole
    assert manifest(artefacts=ALL[::-1]).whole
    assert not manifest(artefacts=ALL[:1]).whole
    assert not manifest(artefacts=ALL[1:]).whole
    assert not manifest(topics=(("T", None),)).whole


def test_sizes_with_holes_and_without() -> None:
    contents = (
        Content(6_000_000, 0, b""),
        Content(6_000_000, 1, b""),
        Content(5000, 4096, b""),
        Content(4097, 4097, b""),
    )
    some = Manifest(**{**vars(manifest()), "files": dict(zip("abcd", contents, strict=True))})
    assert (some.size, some.data_size, some.disk_size) == (12_009_097, 8_194, 4096 * (0 + 1 + 1 + 2))


BATCH, EXT = "batchconsumequeue/B/0/0", "consumequeue_ext/T/0/0"


@pytest.mark.parametrize(
    ("paths", "roots"),
    [
        ((), []),
        (("consumequeue/T/0/0", "index/1"), []),
        ((BATCH,), ["batchconsumequeue"]),
        ((EXT, "config/topics.json"), ["consumequeue_ext", "config/topics.json"]),
        (("consumequeue/batchconsumequeue/0/0",), []),
    ],
)
def test_a_whole_rebuild_replaces_its_artefacts_and_what_it_has_of_others(
    paths: tuple[str, ...], roots: list[str]
) -> None:
    assert manifest(*paths).roots() == [*ALL, *roots]


def test_a_rebuild_of_topics_replaces_their_directories_alone() -> None:
    topics = (("T", None), ("U", 3), ("..", None), ("a/../b", None))
    assert manifest(topics=topics).roots() == ["consumequeue/T", "consumequeue/U/3"]
    assert manifest(EXT, topics=topics).roots() == [
        "consumequeue/T", "consumequeue/U/3", "consumequeue_ext/T", "consumequeue_ext/U/3",
    ]  # fmt: skip


# --------------------------------------------------------------------------------------- a manifest file, and its files
QUEUE = b"units" + bytes(595)  # a queue file: data, and a hole
FILES = {"consumequeue/T/0/0": QUEUE, "checkpoint": b"c" * 4096}


def made(directory: Path, **changes: Any) -> Path:
    """A rebuild as it lies on disk, manifest last."""
    rows = []
    for name, data in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
        stored = data.rstrip(b"\0")
        rows.append({
            "path": name, "size": len(data), "data_size": len(stored), "sha256": hashlib.sha256(stored).hexdigest(),
        })  # fmt: skip
    facts = {
        "format": 2, "log_begin": 0, "log_end": 100, "broker_version": "5.3", "on_damage": "fail", "damaged_ranges": [],
        "artefacts": list(ALL), "topics": [], "settings": {}, "files": rows,
    }  # fmt: skip
    (directory / "manifest.json").write_text(json.dumps({**facts, **changes}))
    return directory


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("T:3", ("T", 3)),
        ("T", ("T", None)),
        ("%RETRY%g:10", ("%RETRY%g", 10)),
        ("a:b", ("a:b", None)),
        ("a:b:7", ("a:b", 7)),
        ("T:", ("T:", None)),
        ("T:\u00b2", ("T:\u00b2", None)),
        ("T:-1", ("T:-1", None)),
        ("7", ("7", None)),
    ],
)
def test_topics_are_read_with_their_queue(text: str, topic: tuple[str, int | None], tmp_path: Path) -> None:
    rows = [{"path": "consumequeue/T/0/0", "size": 0, "data_size": 0, "sha256": ""}]
    changes = {"topics": [text, "T"], "files": rows, "artefacts": ["consumequeue"]}
    assert read_manifest(str(made(tmp_path / "made", **changes))).topics == (topic, ("T", None))


def test_a_rebuild_is_fetched_whole_and_what_was_right_already_stays(tmp_path: Path) -> None:
    source, target = made(tmp_path / "made"), tmp_path / "backup" / "fetched"
    (target / "consumequeue/T/0").mkdir(parents=True)
    (target / "consumequeue/T/0/0").write_bytes(QUEUE)
    (target / "checkpoint").write_bytes(b"half of an earlier attempt")
    kept = (target / "consumequeue/T/0/0").stat()
    fetch(str(source), str(target), read_manifest(str(source)), QUIET)
    found = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert found == {**FILES, "manifest.json": (source / "manifest.json").read_bytes()}
    after = (target / "consumequeue/T/0/0").stat()
    assert (after.st_ino, after.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)
    assert [path.name for path in (tmp_path / "backup").iterdir()] == ["fetched"]


@pytest.mark.parametrize("wrong", [QUEUE[:-1] + b"x", b"UNITS" + QUEUE[5:], QUEUE[:-1], QUEUE + bytes(1)])
def test_a_file_that_changed_where_it_lies_is_not_fetched(wrong: bytes, tmp_path: Path) -> None:
    """Not even a manifest comes then, so that nobody takes what is there for a rebuild."""
    source, target = made(tmp_path / "made"), tmp_path / "fetched"
    (source / "consumequeue/T/0/0").write_bytes(wrong)
    with pytest.raises(Refused, match="differs from what the rebuild wrote") as caught:
        fetch(str(source), str(target), read_manifest(str(source)), QUIET)
    assert caught.value.path == str(source / "consumequeue/T/0/0")
    assert not (target / "consumequeue/T/0/0").exists()
    assert not (target / "manifest.json").exists()


def test_a_manifest_of_30_gigabytes_is_wrong_input(tmp_path: Path) -> None:
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(30 << 30)
    with pytest.raises(NotAStore, match="too large"):
        read_manifest(str(tmp_path))


def test_a_manifest_names_the_log_and_what_was_asked_for(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    for number in range(9):
        log.message(topic="T", queue_id=number % 2, body=b"%d" % number)
    until = log.records[5].offset
    (tmp_path / "work").mkdir()
    built = rebuild_here(
        log.write(tmp_path / "store"), tmp_path / "work", {"maxIndexNum": 50}, topics=(TopicFilter("T", 1),),
        only=("consumequeue",), until_offset=until,
    )  # fmt: skip
    written = json.loads((Path(built.directory) / "manifest.json").read_text())
    asked = {
        name: written[name] for name in ("log_begin", "log_end", "messages", "until_offset", "artefacts", "topics")
    }
    assert asked == {
        "log_begin": 0, "log_end": until, "messages": 5, "until_offset": until, "artefacts": ["consumequeue"],
        "topics": ["T:1"],
    }  # fmt: skip
    assert (written["on_damage"], written["damaged_ranges"], written["queue_store"]) == ("fail", [], "file")
    assert (written["queue_store_asked_for"], written["settings"]["maxIndexNum"]) == (False, 50)
    assert (written["program"], "compact" in written) == ("rocketmq-store-spark", False)
    (file,) = written["files"]
    content = (Path(built.directory) / file["path"]).read_bytes()
    assert (file["path"], file["size"]) == ("consumequeue/T/1/" + "0" * 20, len(content))
    assert file["sha256"] == hashlib.sha256(content[: file["data_size"]]).hexdigest()
