"""The archive for executors: whole or not there, and nobody else's file is touched."""

from __future__ import annotations

import importlib.metadata
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.setup import environment, packing


@pytest.fixture(autouse=True)
def nothing_to_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACKED", ())


def ends_with(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["environment.py", *words])
    with pytest.raises(SystemExit) as ended:
        environment.main()
    return ended.value.code


@pytest.mark.parametrize(("words", "code"), [(["--pack"], 64), (["--pack", "file/x.tgz"], 74), (["--pack", "."], 74)])
def test_what_cannot_be_packed(
    words: list[str], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert ends_with(monkeypatch, *words) == code
    assert capsys.readouterr().err.count("error: ") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_archive_has_a_python_and_replaces_one_that_was_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "x.tgz").write_text("an earlier one")
    assert ends_with(monkeypatch, "--pack", str(tmp_path / "x.tgz")) == 0
    with tarfile.open(tmp_path / "x.tgz") as archive:
        assert [(entry.name, entry.mode) for entry in archive] == [("bin/python", 0o755)]
    assert [path.name for path in tmp_path.iterdir()] == ["x.tgz"]


def test_no_link_leads_the_archive_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a directory where others may write, links lie at the name itself and at the name that drafts once had."""
    victim = tmp_path / "victim"
    victim.write_text("dear to me")
    target = tmp_path / "shared" / "x.tgz"
    target.parent.mkdir()
    for name in (target, target.with_name("x.tgz.draft")):
        name.symlink_to(victim)
    assert ends_with(monkeypatch, "--pack", str(target)) == 0
    assert victim.read_text() == "dear to me"
    assert not target.is_symlink()
    assert target.stat().st_mode & 0o022 == 0


def test_what_is_packed_comes_with_what_it_requires() -> None:
    found = packing.with_required(["delta_spark", "hdfs-native", "absent-package"])
    assert found[:2] == ["delta-spark", "hdfs-native"]
    assert "importlib-metadata" in found
    assert not {"pyspark", "py4j", "absent-package"} & set(found)


def test_files_of_packages_lie_beside_the_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = tmp_path / "site"
    names = ["a/__init__.py", "a/b.py", "a/b.pyc", "a/tests/c.py", "../bin/a"]
    for name in names:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
    files = []
    for name in names:
        file = importlib.metadata.PackagePath(name)
        file.dist = SimpleNamespace(locate_file=lambda path: site / str(path))  # type: ignore[assignment]
        files.append(file)
    asked = []
    monkeypatch.setattr(packing, "with_required", lambda wanted: asked.append(wanted) or ["a", "gone"])
    monkeypatch.setattr(importlib.metadata, "files", {"a": files, "gone": None}.get)
    packing.pack(tmp_path / "x.tgz")
    assert asked == [packing.PACKED]
    with tarfile.open(tmp_path / "x.tgz", "r:gz") as archive:
        assert archive.getnames() == ["bin/python", "packages/a/__init__.py", "packages/a/b.py"]
        program = archive.extractfile("bin/python")
        assert program is not None
        text = program.read().decode()
    assert text == packing.PROGRAM.format(version="{}.{}".format(*sys.version_info[:2]))


def test_what_an_extra_requires_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "a": ["B_b.c>=1", "d; python_version < '9'", "e; extra == 'x'", "pyspark", "(odd)", "a"],
        "b-b-c": None, "d": ["a", "f"],
    }  # fmt: skip

    def requires(name: str) -> list[str] | None:
        if name not in known:
            raise importlib.metadata.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert packing.with_required(["gone", "A", "py4j"]) == ["a", "b-b-c", "d"]
