"""The manifest, and a store that is broken beside its log."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.publishing import plain_manifest as manifest
from support.publishing import snapshot
from support.rebuilding import rebuild_here
from support.refusals import error_of
from support.store_builder import LogBuilder

from jobs.cli import command_line
from jobs.contract.options import ARTEFACTS, InspectOptions, TopicFilter
from jobs.log.opening import open_store
from jobs.rebuild import manifest as manifests
from jobs.rebuild.manifest import Manifest, QueueStoreChoice, RebuiltLog, read_manifest, write_pieces
from storeformat.errors import MissingInput, Refused, StoreFormatError, WriteFailed, WrongSettings
from storeformat.storage.durable import Content

# ------------------------------------------------------------------------------------------------------------- manifest
ALL = tuple(ARTEFACTS)


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
    assert manifest(paths).roots() == [*ALL, *roots]


def test_a_rebuild_of_topics_replaces_their_directories_alone() -> None:
    topics = (("T", None), ("U", 3), ("..", None), ("a/../b", None))
    assert manifest(topics=topics).roots() == ["consumequeue/T", "consumequeue/U/3"]
    assert manifest([EXT], topics=topics).roots() == [
        "consumequeue/T", "consumequeue/U/3", "consumequeue_ext/T", "consumequeue_ext/U/3",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------ a manifest file
SOUND = {
    "format": 2, "log_begin": 0, "log_end": 9, "broker_version": "5.3", "on_damage": "fail", "damaged_ranges": [[1, 2]],
    "artefacts": ["index"], "topics": [], "settings": {"maxIndexNum": 7}, "queue_store": "rocksdb",
    "queue_store_asked_for": True,
    "files": [{"path": "index/1", "size": 5, "data_size": 3, "sha256": "ab" * 32}],
}  # fmt: skip


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
    (tmp_path / "manifest.json").write_text(json.dumps({**SOUND, "topics": [text, "T"], "files": []}))
    assert read_manifest(str(tmp_path)).topics == (topic, ("T", None))


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
AGAIN = "run rebuild again"


def refusal(directory: Path, content: bytes | None) -> tuple[type[StoreFormatError], str, str | None]:
    if content is not None:
        (directory / "manifest.json").write_bytes(content)
    return error_of(lambda: read_manifest(str(directory)))


def test_a_sound_manifest(tmp_path: Path) -> None:
    data = json.dumps(SOUND).encode()
    (tmp_path / "manifest.json").write_bytes(data)
    assert read_manifest(str(tmp_path)) == Manifest(
        hashlib.sha256(data).hexdigest(), RebuiltLog(0, 9, "fail", 1), "5.3", ("index",), (), {"maxIndexNum": "7"},
        {"index/1": Content(5, 3, b"\xab" * 32)}, queue_store=QueueStoreChoice("rocksdb", was_asked_for=True),
    )  # fmt: skip
    short = {name: value for name, value in SOUND.items() if not name.startswith("queue_store")}
    (tmp_path / "manifest.json").write_text(json.dumps(short))
    found = read_manifest(str(tmp_path))
    assert found.queue_store == ("file", False)


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


# ------------------------------------------------------------------------------------------------ broken beside the log
STORE = "base-clean-5.3.3"
NOISE = random.Random(1).randbytes(4096)
FIRST_UNITS = "consumequeue/A/0/00000000000000000000"

Breaking = Callable[[Path], object]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden.unpack(STORE), tmp_path / "store"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    built = rebuild_here(golden.unpack(STORE), tmp_path_factory.mktemp("whole"), {})
    return without_manifest(Path(built.directory))


def without_manifest(made: Path) -> dict[str, str]:
    return {name: found for name, found in snapshot(made).items() if name != "manifest.json"}


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "consumequeue").glob("*/*/0*"))


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def half(paths: list[Path], size: int) -> None:
    for path in paths[: len(paths) // 2]:
        os.truncate(path, size)


BROKEN: dict[str, Breaking] = {
    "a foreign file in index/": lambda root: write(root / "index" / "x.nfs", NOISE[:777]),
    "a foreign name of digits in index/": lambda root: write(root / "index" / "20210711204607053", NOISE[:777]),
    "a page of noise for a checkpoint": lambda root: write(root / "checkpoint", NOISE),
    "a page of other noise for a checkpoint": lambda root: write(root / "checkpoint", random.Random(0).randbytes(4096)),
    "the first index file lost its bytes": lambda root: os.truncate(index_files(root)[0], 0),
    "the first index file lost all but 13 bytes": lambda root: os.truncate(index_files(root)[0], 13),
    "the first index file is noise": lambda root: write(index_files(root)[0], NOISE[:1640]),
    "a header that counts too little": lambda root: write(root / "index" / "20210101000000000", NOISE[:1640]),
    "half of the index files are cut": lambda root: half(index_files(root), 1000),
    "half of the queue files are cut": lambda root: half(queue_files(root), 13),
    "topics.json nests too deep": lambda root: write(root / "config" / "topics.json", b"[" * 100_000),
    "a pipe in index/": lambda root: os.mkfifo(root / "index" / "20210711204607053"),
    "a pipe beside the log": lambda root: os.mkfifo(root / "pipe"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_rebuild_is_the_same(name: str, store: Path, whole: dict[str, str], tmp_path: Path) -> None:
    BROKEN[name](store)
    built = rebuild_here(store, tmp_path / "work", {})
    assert without_manifest(Path(built.directory)) == whole


def test_one_damaged_header_does_not_outvote_the_others(tmp_path: Path) -> None:
    store = Path(shutil.copytree(golden.unpack("base-clean-4.6.1"), tmp_path / "store"))
    with index_files(store)[0].open("r+b") as file:
        file.seek(32)
        file.write(b"\0\0\0\1")  # hash_slot_count
    assert open_store(InspectOptions(store=str(store))).rules.version == "4.6"


def ask(root: Path, capsys: pytest.CaptureFixture[str], *question: str) -> tuple[int, str, str]:
    code = command_line.main(["query", *question, "--store", str(root), "--json", "--quiet"])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("size", [0, 13, 980, 1020])
@pytest.mark.parametrize("question", [("offset", "--offset", "1"), ("time", "--time", "0")])
def test_a_cut_queue_file_is_named(
    size: int, question: tuple[str, ...], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(store / FIRST_UNITS, size)
    code, _, said = ask(store, capsys, *question, "--topic", "A", "--queue", "0")
    assert code == 65
    assert FIRST_UNITS in said
    assert f"found {size}, expected 1000" in said
    assert "--scan" in said


def test_an_empty_last_queue_file_is_none(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Brokers from 5.1.3 on start with it; earlier ones do not start at all."""
    (store / "consumequeue" / "A" / "0" / f"{len(queue_files(store)) * 1000:020d}").touch()
    code, answer, _ = ask(store, capsys, "offset", "--offset", "1", "--topic", "A", "--queue", "0")
    assert (code, json.loads(answer)["found"]) == (0, 1)


@pytest.mark.parametrize("size", [0, 13, 1000, 1639, 2000])
def test_a_cut_index_file_reads_as_a_broker_maps_it(size: int, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Zeros after its end; here nothing else of the index can answer."""
    last = index_files(store)[-1]
    os.truncate(last, size)
    code, answer, said = ask(store, capsys, "key", "--topic", "A", "--key", "no such key")
    assert (code, said) == (1, "")
    assert json.loads(answer)["commit_log_offsets"] == []


def test_the_only_files_being_cut_is_told_with_a_way_on(store: Path) -> None:
    """Values that are the defaults stand in no broker.conf, so that giving them cannot be the only way."""
    for path in index_files(store)[1:]:
        path.unlink()
    os.truncate(index_files(store)[0], 1000)
    with pytest.raises(WrongSettings) as refusal:
        open_store(InspectOptions(store=str(store)))
    assert "move index/ away" in (refusal.value.advice or "")
    shutil.rmtree(store / "index")
    assert open_store(InspectOptions(store=str(store))).settings.number("maxIndexNum") == 20_000_000
