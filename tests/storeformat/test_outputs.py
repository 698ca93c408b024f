"""Where something new may go, and drafts that get their names when they are whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs as pafs
from support.patching import stand_in
from support.refusals import refusal

from storeformat.errors import Refused, WriteFailed
from storeformat.storage import clients, local_files, outputs


def test_links_are_followed_before_a_place_is_judged(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    store = str(tmp_path / "store")
    assert outputs.resolved(str(tmp_path / "link" / "new")) == str(Path(store).resolve() / "new")
    assert outputs.resolved("s3://bucket/a/../b") == "s3://bucket/a/../b"
    assert outputs.lies_inside(str(tmp_path / "link" / "new" / "deep"), store)
    assert outputs.lies_inside(store, str(tmp_path / "link"))
    assert not outputs.lies_inside(str(tmp_path / "store-2"), store)
    assert not outputs.lies_inside(str(tmp_path), store)


def test_a_private_directory_is_new(tmp_path: Path) -> None:
    outputs.make_private_directory(str(tmp_path / "c" / "d"))
    outputs.make_private_directory("s3://bucket/a")
    assert stat.S_IMODE((tmp_path / "c" / "d").stat().st_mode) == 0o700
    with pytest.raises(WriteFailed, match="exists"):
        outputs.make_private_directory(str(tmp_path / "c" / "d"))


def test_a_directory_is_no_place_for_a_file(tmp_path: Path) -> None:
    said = {"what": "cannot be written: this is a directory", "path": str(tmp_path)}
    assert refusal(WriteFailed, lambda: outputs.refuse_directory(str(tmp_path))) == said
    outputs.refuse_directory(str(tmp_path / "new"))
    outputs.refuse_directory("s3://bucket/place")
    (tmp_path / "file").touch()
    outputs.refuse_directory(str(tmp_path / "file"))


def test_only_an_absent_or_empty_directory_takes_an_output(tmp_path: Path) -> None:
    outputs.refuse_used_directory(str(tmp_path / "absent"))
    outputs.refuse_used_directory(str(tmp_path))
    (tmp_path / "b").touch()
    (tmp_path / "a").mkdir()
    assert refusal(Refused, lambda: outputs.refuse_used_directory(str(tmp_path))) == {
        "what": "the output directory is not empty",
        "path": str(tmp_path),
        "found": "a",
        "expected": "nothing",
        "advice": "choose another directory, or empty this one",
    }


def test_a_bucket_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Buckets:
        def get_file_info(self, asked: str) -> Any:
            kind = pafs.FileType.Directory if asked == "there" else pafs.FileType.NotFound
            return pafs.FileInfo(asked, kind)

    monkeypatch.setattr(clients, "client_of", lambda uri: (Buckets(), uri.removeprefix("s3://").partition("?")[0]))
    outputs.refuse_missing_bucket("s3://there/a/b?region=eu")
    outputs.refuse_missing_bucket("/none")
    said = {"what": "there is no such bucket", "path": "s3://gone?region=eu"}
    assert refusal(WriteFailed, lambda: outputs.refuse_missing_bucket("s3://gone/a/b?region=eu")) == said


def test_what_was_made_for_an_output_is_removed_up_to_what_is_used(tmp_path: Path) -> None:
    missing = outputs.missing_parents(str(tmp_path / "a" / "b" / "c"))
    assert missing == [str(tmp_path / "a" / "b"), str(tmp_path / "a")]
    assert outputs.missing_parents("s3://bucket/a/b") == []
    (tmp_path / "a" / "b").mkdir(parents=True)
    outputs.remove_empty(missing)
    assert not list(tmp_path.iterdir())
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "used").touch()
    outputs.remove_empty([*missing, str(tmp_path)])
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["used"]


def test_a_draft_has_a_name_of_its_own_and_gets_that_of_the_file(tmp_path: Path) -> None:
    place, drafts = str(tmp_path / "deep" / "file"), str(tmp_path / "drafts")
    one, other = outputs.draft_of(place, drafts), outputs.draft_of(place, drafts)
    assert one != other
    assert {str(Path(one).parent), str(Path(other).parent)} == {drafts}
    assert outputs.draft_of("s3://bucket/file", drafts) == "s3://bucket/file"
    outputs.settle("s3://bucket/file", "s3://bucket/file")
    Path(drafts).mkdir()
    for draft, text in ((one, "one"), (other, "other")):
        Path(draft).write_text(text)
        outputs.settle(draft, place)
        assert Path(place).read_text() == text
    assert not list(Path(drafts).iterdir())


def test_a_file_is_replaced_whole_and_a_failure_leaves_no_draft(tmp_path: Path) -> None:
    outputs.replace_bytes(str(tmp_path / "file"), b"first, and longer")
    outputs.replace_bytes(str(tmp_path / "file"), b"second")
    assert (tmp_path / "file").read_bytes() == b"second"
    (tmp_path / "taken").mkdir()
    with pytest.raises(WriteFailed) as caught:
        outputs.replace_bytes(str(tmp_path / "taken"), b"text")
    assert caught.value.path == str(tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


def test_an_object_is_replaced_whole(hdfs: Any) -> None:
    for data in (b"first, and longer", b"second"):
        outputs.replace_bytes("hdfs://node:8020/a/file", data)
        assert hdfs.cat_file("/a/file") == data


def test_a_failure_halfway_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"old")
    for failure in (OSError(28, "full"), KeyboardInterrupt()):
        stand_in(monkeypatch, local_files, "os", replace=raising(failure))
        with pytest.raises((WriteFailed, KeyboardInterrupt)):
            outputs.replace_bytes(str(tmp_path / "file"), b"new")
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def raising(error: BaseException) -> Callable[..., None]:
    def call(*unused: object, **also: object) -> None:
        raise error

    return call


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "there").symlink_to("victim")
    (tmp_path / "nowhere").symlink_to("planted")
    for name in ("there", "nowhere"):
        outputs.replace_bytes(str(tmp_path / name), b"report")
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_bytes() == b"report"
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "planted").exists()


def test_a_pipe_or_a_device_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name in ("pipe", "device"):
        with pytest.raises(WriteFailed, match="not a regular file"):
            outputs.replace_bytes(str(tmp_path / name), b"report")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "device").is_symlink()


@pytest.mark.parametrize(("umask", "mode"), [(0, 0o666), (0o022, 0o644), (0o077, 0o600)])
def test_permissions_are_those_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        outputs.replace_bytes(str(tmp_path / "file"), b"report")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode
