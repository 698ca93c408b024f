"""A bundle is taken for what it is: files of named places with their digests, for one kind of machine."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support.fake_java import executable

from jobs.setup import bundle
from jobs.setup.setup_steps import SetupError, say


def archive(path: Path, files: dict[str, bytes], /, link: str | None = None, **changes: Any) -> Path:
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
    with pytest.raises(SetupError, match=r"'jars/b\.jar' is damaged"):
        unpack(tmp_path, file)


def test_a_link_is_no_file(tmp_path: Path) -> None:
    file = archive(tmp_path / "x.tar", {}, link="jars/b.jar")
    with pytest.raises(SetupError, match="is not what --bundle writes"):
        unpack(tmp_path, file)


@pytest.mark.parametrize(
    ("change", "there"),
    [
        ({"python": "3.9"}, "Python 3.9 on Linux x86_64"),
        ({"machine": "s390x"}, "Python 3.11 on Linux s390x"),
        ({"system": "Darwin"}, "Python 3.11 on Darwin x86_64"),
    ],
)
def test_another_kind_of_machine_is_told_so(
    tmp_path: Path, change: dict[str, str], there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "target", lambda: {"python": "3.11", "system": "Linux", "machine": "x86_64"})
    with pytest.raises(SetupError) as error:
        unpack(tmp_path, archive(tmp_path / "x.tar", {}, **change))
    assert str(error.value) == f"the bundle is for {there}, this is Python 3.11 on Linux x86_64"
    assert error.value.advice == (
        "name a Python of that version in ROCKETMQ_STORE_SPARK_PYTHON, or make the bundle with this one"
    )


def test_no_bundle_is_no_directory(tmp_path: Path) -> None:
    with bundle.unpacked(None, tmp_path) as directory:
        assert directory is None


def test_what_would_grow_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole of terabytes takes a kilobyte in an archive, and an archive may be one itself."""
    file = tmp_path / "x.tar"
    with tarfile.open(archive(file, {"jars/a.jar": b"a"}), "a", format=tarfile.PAX_FORMAT) as packed:
        entry = tarfile.TarInfo("jars/b.jar")
        entry.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "jars/b.jar",
                             "GNU.sparse.size": str(8 << 40), "GNU.sparse.map": f"0,0,{8 << 40},0"}  # fmt: skip
        packed.addfile(entry)
    with pytest.raises(SetupError, match=r"'jars/b\.jar' is not a file of its own"):
        unpack(tmp_path, file)
    with archive(file, {}).open("r+b") as whole:
        whole.truncate(8 << 40)
    with pytest.raises(SetupError, match="more than 2 GiB"):
        unpack(tmp_path, file)
    monkeypatch.setattr(bundle, "_MOST_FILES", 3)
    with pytest.raises(SetupError, match="more than 3"):
        unpack(tmp_path, archive(file, {f"jars/{number}": b"" for number in range(4)}))
    monkeypatch.setattr(bundle, "_MOST_ABOUT", 10)
    with pytest.raises(SetupError, match=r"bundle\.json is too large"):
        unpack(tmp_path, archive(file, {}))
    assert list((tmp_path / "venv").iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"files": []}, {"files": {"jars/a.jar": None}}, {"files": None}, {"files": {"jars/\0": "0"}}, {"machine": 5},
        {"machine": "\x1b[2J"}, {"system": None}, {"files": {"jars/a.jar": {}}}, {"files": {"jars/a\n\x1b[2J": "0"}},
    ],
)  # fmt: skip
def test_whatever_it_says_of_itself_is_told_in_a_line(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SetupError) as caught:
        unpack(tmp_path, archive(tmp_path / "x.tar", {"jars/a.jar": b"a"}, **changes))
    say(str(caught.value))
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "\x1b" not in said


@pytest.mark.parametrize("about", [b"[]", b"1", b"{" * 100_000, b"[" * 100_000, b"\xff", b""])
def test_what_describes_no_bundle(about: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as packed:
        entry = tarfile.TarInfo(bundle.ABOUT)
        entry.size = len(about)
        packed.addfile(entry, io.BytesIO(about))
    with pytest.raises(SetupError, match="is not what --bundle writes"):
        unpack(tmp_path, tmp_path / "x.tar")


class TestWheels:
    """What pip is asked for, by a Python that only pretends."""

    @pytest.fixture
    def work(self, tmp_path: Path) -> Path:
        (tmp_path / "work").mkdir()
        return tmp_path / "work"

    def test_each_as_it_was_published(self, tmp_path: Path, work: Path) -> None:
        (tmp_path / "setup-bundle.log").write_text("of an earlier one\n")
        executable(tmp_path / "bin" / "python", f'#!/bin/sh\necho "$@" > "{tmp_path}/told"\n')
        bundle._wheels(tmp_path, work, "a==1 --hash=x")
        assert (tmp_path / "told").read_text() == (
            "-m pip --disable-pip-version-check download --quiet --no-deps --no-build-isolation --use-pep517"
            f" --require-hashes --dest {work}/wheels -r {work}/requirements.txt\n"
        )
        assert (work / "requirements.txt").read_text() == "a==1 --hash=x"
        assert "earlier" not in (tmp_path / "setup-bundle.log").read_text()

    @pytest.mark.parametrize(
        ("said", "reason"), [("echo ERROR: no; echo ERROR: no route", "no route"), ("echo hm", "pip failed")]
    )
    def test_why_they_did_not_come(self, tmp_path: Path, work: Path, said: str, reason: str) -> None:
        executable(tmp_path / "bin" / "python", f"#!/bin/sh\n{said}\nexit 1\n")
        with pytest.raises(SetupError) as error:
            bundle._wheels(tmp_path, work, "")
        assert str(error.value) == f"the packages could not be fetched: {reason}"
        assert error.value.advice == f"pip's output: {tmp_path / 'setup-bundle.log'}"

    def test_one_that_was_changed_on_its_way(self, tmp_path: Path, work: Path) -> None:
        said = "DO NOT MATCH THE HASHES.\n    a==1 from x:\n        Expected sha256 b\n             Got        c1\n"
        executable(tmp_path / "bin" / "python", f"#!/bin/sh\necho '{said}'\nexit 1\n")
        with pytest.raises(bundle.NotPublished) as error:
            bundle._wheels(tmp_path, work, "")
        log = tmp_path / "setup-bundle.log"
        assert str(error.value) == f"a package is not the published one: a==1 from x has SHA-256 c1 (see {log})"
        assert error.value.advice == "it was changed on its way, or built again: check where it came from"


def test_a_bundle_without_deltas_jars_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as error:
        bundle.write(tmp_path / "x.tar", tmp_path, "")
    assert str(error.value) == "Delta's jars are not there"
    assert error.value.advice == "install Maven, or name a directory in ROCKETMQ_STORE_SPARK_JARS"
    assert list(tmp_path.iterdir()) == []


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
    checked = []
    monkeypatch.setattr("jobs.setup.delta_jars.check", checked.append)
    (venv / "jars" / "b.jar").write_bytes(b"b")
    bundle.write(tmp_path / "x.tar", venv, "what is wanted")
    assert checked == [venv / "jars"]
    assert [path.name for path in venv.iterdir()] == ["jars"]
    assert victim.read_text() == "dear to me"
    assert unpack(tmp_path, tmp_path / "x.tar") == {"wheels/a.whl": b"what is wanted", "jars/b.jar": b"b"}
    with tarfile.open(tmp_path / "x.tar") as packed:
        assert packed.getnames() == ["bundle.json", "wheels/a.whl", "jars/b.jar"]
        about = json.load(packed.extractfile("bundle.json") or io.BytesIO())
    files = {"wheels/a.whl": b"what is wanted", "jars/b.jar": b"b"}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert about == {**bundle.target(), "files": sums}
    assert bundle.target() == {
        "python": ".".join(platform.python_version_tuple()[:2]), "system": platform.system(),
        "machine": platform.machine(),
    }  # fmt: skip
