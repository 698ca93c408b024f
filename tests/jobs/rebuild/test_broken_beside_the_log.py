"""Broken or foreign files beside a sound log: a rebuild makes the same bytes, a question gets an answer or a line."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import golden
from support.publishing import snapshot
from support.rebuilding import rebuild_here

from jobs.cli import command_line
from jobs.contract.options import InspectOptions
from jobs.log.opening import open_store
from storeformat.errors import WrongSettings

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
