"""The archive for executors: whole or not there, and nobody else's file is touched."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

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
