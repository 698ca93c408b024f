"""Packages are the published ones, wherever they come from, and are those that pyproject.toml asks for."""

from __future__ import annotations

import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.fake_java import executable

from jobs.setup import bundle, environment
from jobs.setup.setup_steps import StepProgress

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads(environment.PROJECT.read_text(encoding="utf-8"))["project"]
FILES = sorted(path.stem for path in environment.REQUIREMENTS.glob("*.txt"))


def wheel(directory: Path, code: str) -> Path:
    """Return a wheel with one module, which pip installs."""
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files = {"tiny.py": code, **{f"tiny-1.0.dist-info/{name}": text for name, text in about.items()}}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr("tiny-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in files))
    path = directory / "tiny-1.0-py3-none-any.whl"
    path.write_bytes(packed.getvalue())
    return path


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an environment whose pip installs into a directory, from the directory ``wheels`` alone."""
    venv, wheels = tmp_path / "venv", tmp_path / "wheels"
    pip = 'case $3 in install) exec "$0.real" "$@" --target "${0%/bin/*}/target";; *) exec "$0.real" "$@";; esac'
    executable(venv / "bin" / "python", f"#!/bin/sh\n{pip}\n")
    executable(venv / "bin" / "python.real", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    wheels.mkdir()
    monkeypatch.setenv(environment.WHEELS, str(wheels))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return venv


def locked_to(path: Path) -> str:
    return f"tiny==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.mark.thorough
def test_a_tampered_wheel_is_refused(tmp_path: Path, venv: Path) -> None:
    lock = locked_to(wheel(tmp_path / "wheels", "PUBLISHED = 1"))
    environment.pip_install(venv, lock, StepProgress(venv / "log"))
    assert (venv / "target" / "tiny.py").read_text() == "PUBLISHED = 1"
    other = wheel(tmp_path / "wheels", "PUBLISHED = 0")
    found = hashlib.sha256(other.read_bytes()).hexdigest()
    with pytest.raises(bundle.NotPublished, match=rf"a package is not the published one: tiny==1\.0.* SHA-256 {found}"):
        environment.pip_install(venv, lock, StepProgress(venv / "log"), "--upgrade")
    assert (venv / "target" / "tiny.py").read_text() == "PUBLISHED = 1"


def test_a_tampered_wheel_is_not_taken_for_one_that_is_missing(
    tmp_path: Path, venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = locked_to(wheel(tmp_path / "wheels", "PUBLISHED = 1")).replace("tiny", "numba")
    monkeypatch.setattr(environment, "SETUP", tmp_path / "setup.txt")
    environment.SETUP.write_text(lock.replace("numba", "tiny"))
    monkeypatch.setattr(environment, "NUMBA", ("tiny",))
    wheel(tmp_path / "wheels", "PUBLISHED = 0")
    with pytest.raises(bundle.NotPublished):
        environment.install_with_numba(venv, (), StepProgress(venv / "log"))


def test_what_has_no_hash_is_refused(tmp_path: Path, venv: Path) -> None:
    wheel(tmp_path / "wheels", "")
    with pytest.raises(environment.SetupError, match="Hashes are required"):
        environment.pip_install(venv, "tiny==1.0\n", StepProgress(venv / "log"))
    assert not (venv / "target").exists()


def test_a_tampered_wheel_comes_into_no_bundle(tmp_path: Path, venv: Path) -> None:
    lock = locked_to(wheel(tmp_path / "wheels", "PUBLISHED = 1"))
    (tmp_path / "work").mkdir()
    bundle._wheels(venv, tmp_path / "work", lock)
    assert [path.name for path in (tmp_path / "work" / "wheels").iterdir()] == ["tiny-1.0-py3-none-any.whl"]
    wheel(tmp_path / "wheels", "PUBLISHED = 0")
    (tmp_path / "work" / "wheels" / "tiny-1.0-py3-none-any.whl").unlink()
    with pytest.raises(bundle.NotPublished):
        bundle._wheels(venv, tmp_path / "work", lock)


def test_each_package_has_one_version_a_python_and_a_hash() -> None:
    for name in FILES:
        for package in re.split(r"\n(?=\S)", (environment.REQUIREMENTS / f"{name}.txt").read_text()):
            if not package.startswith(("#", "-r ")):
                first, *rest = package.replace("\\\n", "\n").split("\n")
                assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .*)? ?", first), first
                hashes = [line for line in rest if line]
                assert hashes
                assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64} ?", line) for line in hashes), first


def files_of(extra: str) -> set[str]:
    named = re.findall(r"^-r (\w+)\.txt$", (environment.REQUIREMENTS / f"{extra}.txt").read_text(), re.MULTILINE)
    return {extra, "setup"}.union(*(files_of(one) for one in named))


@pytest.mark.parametrize("extra", FILES)
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_they_are_what_the_project_asks_for(extra: str, python: str) -> None:
    optional = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *optional["fast"], *optional.get(extra, ())]
    text = "\n".join((environment.REQUIREMENTS / f"{one}.txt").read_text() for one in files_of(extra))
    there: dict[str, set[str]] = {}
    for line in re.findall(r"^[\w.-]+==.*", text, re.MULTILINE):
        package = Requirement(line.rstrip(" \\"))
        if package.marker is None or package.marker.evaluate(
            {"python_version": python, "python_full_version": f"{python}.9"}
        ):
            there.setdefault(package.name, set()).add(str(package.specifier).removeprefix("=="))
    assert {name: versions for name, versions in there.items() if len(versions) > 1} == {}
    for one in map(Requirement, asked):
        if one.name == PROJECT["name"]:
            continue  # an extra that names others: their files are named in this one's
        (version,) = there[one.name]
        assert one.specifier.contains(version), (one, version)
