"""Which Java there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_java import java_that_says

from jobs.setup.java import version_of


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25), ("x", 0)])
def test_versions(tmp_path: Path, said: str, version: int) -> None:
    assert version_of(str(java_that_says(tmp_path / "java", said))) == version


def test_none_has_no_version(tmp_path: Path) -> None:
    assert version_of(str(tmp_path / "absent")) == 0
