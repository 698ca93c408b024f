"""What may be installed is named with its bytes, and is what pyproject.toml asks for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "conf" / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FILES = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def test_each_package_has_one_version_a_python_and_a_hash() -> None:
    for name in FILES:
        for package in re.split(r"\n(?=\S)", (REQUIREMENTS / f"{name}.txt").read_text()):
            if not package.startswith(("#", "-r ")):
                first, *rest = package.replace("\\\n", "\n").split("\n")
                assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .*)? ?", first), first
                hashes = [line for line in rest if line]
                assert hashes
                assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64} ?", line) for line in hashes), first


def files_of(extra: str) -> set[str]:
    named = re.findall(r"^-r (\w+)\.txt$", (REQUIREMENTS / f"{extra}.txt").read_text(), re.MULTILINE)
    return {extra, "build", "setup", "fast"}.union(*(files_of(one) for one in named))


@pytest.mark.parametrize("extra", FILES)
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_they_are_what_the_project_asks_for(extra: str, python: str) -> None:
    optional = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *optional["fast"], *optional.get(extra, ())]
    text = "\n".join((REQUIREMENTS / f"{one}.txt").read_text() for one in files_of(extra))
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


def test_deltas_jars_are_of_the_pinned_versions() -> None:
    pinned = dict(line.split("==") for line in PROJECT["dependencies"] if "==" in line)
    spark = ".".join(pinned["pyspark"].split(".")[:2])
    version = pinned["delta-spark"]
    sums = (ROOT / "conf" / "delta-jars.sha256").read_text()
    assert re.findall(r"^[0-9a-f]{64}  (io/delta/delta-spark\S+)$", sums, re.MULTILINE) == [
        f"io/delta/delta-spark_{spark}_2.13/{version}/delta-spark_{spark}_2.13-{version}.jar"
    ]
    assert set(re.findall(r"io/delta/\S+?/([\d.]+)/", sums)) == {version}
