"""A bundle is taken for what it is: files of named places with their digests, for one kind of machine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from jobs.setup import bundle
from jobs.setup.setup_steps import SetupError


def archive(path: Path, files: dict[str, bytes], link: str | None = None, **changes: Any) -> Path:
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()} | ({link: "0"} if link else {})
    about = {**bundle.target(), "files": sums, **changes}
    with tarfile.open(path, "w") as packed:
        for name, data in {bundle.ABOUT: json.dumps(about).encode(), **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))
        if link is not None:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            packed.addfile(entry)
    return path


def unpack(tmp_path: Path, file: Path) -> dict[str, bytes]:
    (tmp_path / "venv").mkdir(exist_ok=True)
    with bundle.unpacked(file, tmp_path / "venv") as directory:
        assert directory is not None
        return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*.*")}


def test_its_files_come_out_and_go_again(tmp_path: Path) -> None:
    files = {"wheels/a-1-py3-none-any.whl": b"a", "jars/b.jar": b"b"}
    assert unpack(tmp_path, archive(tmp_path / "x.tar", files)) == files
    assert list((tmp_path / "venv").iterdir()) == []


@pytest.mark.parametrize("name", ["wheels/../../planted", "/tmp/planted", "jars/", "bin/python", "wheels/.."])
def test_no_file_lies_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError, match="does not belong in a bundle"):
        unpack(tmp_path, archive(tmp_path / "x.tar", {name: b"planted"}))
    assert not (tmp_path / "planted").exists()


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    file = archive(tmp_path / "x.tar", {"jars/b.jar": b"the bytes"})
    file.write_bytes(file.read_bytes().replace(b"the bytes", b"THE BYTES"))
    with pytest.raises(SetupError, match=r"jars/b\.jar is damaged"):
        unpack(tmp_path, file)


def test_a_link_is_no_file(tmp_path: Path) -> None:
    file = archive(tmp_path / "x.tar", {}, link="jars/b.jar")
    with pytest.raises(SetupError, match="is not what --bundle writes"):
        unpack(tmp_path, file)


@pytest.mark.parametrize("change", [{"python": "3.9"}, {"machine": "s390x"}])
def test_another_kind_of_machine_is_told_so(tmp_path: Path, change: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="the bundle is for Python "):
        unpack(tmp_path, archive(tmp_path / "x.tar", {}, **change))


@pytest.mark.parametrize("data", [b"", b"nonsense" * 100])
def test_something_else_is_told_so(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(SetupError, match="is not what --bundle writes"):
        unpack(tmp_path, tmp_path / "x.tar")


def test_a_bundle_is_written_whole_and_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv, victim = tmp_path / "venv", tmp_path / "victim"
    (venv / "jars").mkdir(parents=True)
    victim.write_text("dear to me")
    for name in ("x.tar", "x.tar.draft"):
        (tmp_path / name).symlink_to(victim)

    def wheels(venv: Path, work: Path, requirements: str) -> None:
        (work / "wheels").mkdir()
        (work / "wheels" / "a.whl").write_text(requirements)

    monkeypatch.setattr(bundle, "_wheels", wheels)
    monkeypatch.setattr("jobs.setup.delta_jars.check", lambda directory: None)
    bundle.write(tmp_path / "x.tar", venv, "what is wanted")
    assert victim.read_text() == "dear to me"
    assert unpack(tmp_path, tmp_path / "x.tar") == {"wheels/a.whl": b"what is wanted"}
