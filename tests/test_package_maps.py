"""The docstring of a package is its map: it names each module and each package in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALONE = {"__init__", "__main__"}
PACKAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for name in ("storeformat", "udfs", "jobs")
    for path in (ROOT / name).rglob("__init__.py")
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_all_that_is_in_it(package: str) -> None:
    file = ROOT / package
    words = set(re.findall(r"\w+", ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""))
    modules = {path.stem for path in file.parent.glob("*.py")} - ALONE
    packages = {path.parent.name for path in file.parent.glob("*/__init__.py")}
    assert modules | packages <= words
