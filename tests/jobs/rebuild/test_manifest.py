"""What a manifest says of a rebuild, and which parts of a store it replaces."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder

from jobs.contract.option_values import ARTEFACTS
from jobs.contract.options import TopicFilter
from jobs.rebuild import manifest as manifests
from jobs.rebuild.manifest import Manifest, read_manifest, write_pieces
from storeformat.errors import MissingInput, NotAStore, Refused, StoreFormatError, WriteFailed
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
    assert (some.size, some.data_size) == (12_009_097, 8_194)


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
    assert written["program"] == "rocketmq-store-spark"
    (file,) = written["files"]
    content = (Path(built.directory) / file["path"]).read_bytes()
    assert (file["path"], file["size"]) == ("consumequeue/T/1/" + "0" * 20, len(content))
    assert file["sha256"] == hashlib.sha256(content[: file["data_size"]]).hexdigest()


# -------------------------------------------------------------------------------------------------- what is no manifest
SOUND = {
    "format": 2, "log_begin": 0, "log_end": 9, "broker_version": "5.3", "on_damage": "fail", "damaged_ranges": [[1, 2]],
    "artefacts": ["index"], "topics": [], "settings": {"maxIndexNum": 7}, "queue_store": "rocksdb",
    "queue_store_asked_for": True,
    "files": [{"path": "index/1", "size": 5, "data_size": 3, "sha256": "ab" * 32}],
}  # fmt: skip
AGAIN = "run rebuild again"


def refusal(directory: Path, content: bytes | None) -> tuple[type[StoreFormatError], str, str | None]:
    if content is not None:
        (directory / "manifest.json").write_bytes(content)
    with pytest.raises(StoreFormatError) as caught:
        read_manifest(str(directory))
    return type(caught.value), str(caught.value), caught.value.advice


def test_a_sound_manifest(tmp_path: Path) -> None:
    data = json.dumps(SOUND).encode()
    (tmp_path / "manifest.json").write_bytes(data)
    assert read_manifest(str(tmp_path)) == Manifest(
        hashlib.sha256(data).hexdigest(), 0, 9, "5.3", "fail", 1, ("index",), (), {"maxIndexNum": "7"},
        {"index/1": Content(5, 3, b"\xab" * 32)}, queue_store="rocksdb", queue_store_asked_for=True,
    )  # fmt: skip
    short = {name: value for name, value in SOUND.items() if not name.startswith("queue_store")}
    (tmp_path / "manifest.json").write_text(json.dumps(short))
    found = read_manifest(str(tmp_path))
    assert (found.queue_store, found.queue_store_asked_for) == ("file", False)


@pytest.mark.parametrize(
    ("changes", "what", "advice"),
    [
        ({"format": 1}, "another version of this program wrote this manifest: found 1, expected 2 (PATH)", AGAIN),
        ({"log_end": "x"}, "the manifest cannot be understood (PATH)", AGAIN),
        ({"files": [{"path": "index/1"}]}, "the manifest cannot be understood (PATH)", AGAIN),
        ({"files": [{**SOUND["files"][0], "data_size": 6}]}, "the manifest cannot be understood (PATH)", AGAIN),
        ({"files": [{**SOUND["files"][0], "data_size": -1}]}, "the manifest cannot be understood (PATH)", AGAIN),
        ({"settings": 5}, "the manifest cannot be understood (PATH)", AGAIN),
        ({"log_end": float("inf")}, "the manifest cannot be understood (PATH)", AGAIN),
        ({"artefacts": [[]]}, "the manifest names an unknown release or artefact (PATH)", AGAIN),
        ({"queue_store": "both"}, "the manifest names an unknown place of queues (PATH)", AGAIN),
        ({"broker_version": "3.2"}, "the manifest names an unknown release or artefact (PATH)", AGAIN),
        ({"artefacts": ["index", "x"]}, "the manifest names an unknown release or artefact (PATH)", AGAIN),
        *(
            (
                {"files": [{**SOUND["files"][0], "path": path}]},
                f"the manifest names a file that does not belong to its artefacts: found {path} (PATH)",
                None,
            )
            for path in ("indexes/1", "index/../x", "index//1", "/index/1", "index/.", "commitlog/0")
        ),
    ],
)
def test_manifests_that_are_refused(tmp_path: Path, changes: dict[str, Any], what: str, advice: str | None) -> None:
    content = json.dumps({**SOUND, **changes}).encode()
    said = what.replace("PATH", f"{tmp_path}/manifest.json")
    assert refusal(tmp_path, content) == (Refused, said, advice)


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000])
def test_what_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    said = f"the manifest cannot be understood ({tmp_path}/manifest.json)"
    assert refusal(tmp_path, content) == (Refused, said, AGAIN)


def test_a_manifest_of_many_topics_and_files_is_read_at_once(tmp_path: Path) -> None:
    """Each file was compared with each topic: 20,000 of both took 90 s."""
    topics = [f"t{number:05}" for number in range(20_000)]
    rows = [{**SOUND["files"][0], "path": f"consumequeue/{topic}/0/{0:020d}"} for topic in topics]
    content = {**SOUND, "artefacts": ["consumequeue"], "topics": topics, "files": rows, "queue_store": "file"}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    begun = time.monotonic()
    assert len(read_manifest(str(tmp_path)).files) == 20_000
    assert time.monotonic() - begun < 5


def test_no_manifest(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no", None) == (MissingInput, f"there is no such directory ({tmp_path}/no)", None)
    said = f"this is not a finished rebuild: it has no manifest ({tmp_path}/manifest.json)"
    moved = "an empty one was published: what it held is in that store, and its manifest in the store's backup/"
    assert refusal(tmp_path, None) == (Refused, said, f"run rebuild --output first ({moved})")
    (tmp_path / "index").mkdir()
    assert refusal(tmp_path, None) == (Refused, said, "run rebuild --output first")


def test_a_manifest_is_written_once(tmp_path: Path) -> None:
    write_pieces(str(tmp_path), [b"one", b"two"])
    assert (tmp_path / "manifest.json").read_bytes() == b"onetwo"
    with pytest.raises(Refused) as caught:
        write_pieces(str(tmp_path), [b"x"])
    assert str(caught.value) == f"another rebuild wrote here at the same time ({tmp_path}/manifest.json)"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "read_back", lambda path, size: (0, Content(1, 1, bytes(32))))
        with pytest.raises(WriteFailed) as failed:
            write_pieces(str(tmp_path / "new"), [b"x"])
    said = "the manifest changed after it was written: another rebuild is writing here"
    assert str(failed.value) == f"{said} ({tmp_path}/new/manifest.json)"
