"""One store and its rebuild for all tests of publish and restore; each test gets a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.publishing import (
    STORE,
    Case,
    Snapshot,
    make_case,
    snapshot,
)

DERIVED = ("consumequeue", "index", "checkpoint", "abort")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("original"), STORE)


@pytest.fixture
def case(original: Case, tmp_path: Path) -> Case:
    return original.copy(tmp_path / "case")


@pytest.fixture(scope="module")
def old(original: Case) -> Snapshot:
    return snapshot(original.root)


@pytest.fixture(scope="module")
def new(original: Case, old: Snapshot) -> Snapshot:
    kept = {name: value for name, value in old.items() if name.partition("/")[0] not in DERIVED}
    return {**kept, **{name: value for name, value in snapshot(original.out).items() if name != "manifest.json"}}
