"""One store and its rebuild for all tests of publish and restore; each test gets a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.publishing import (
    STORE,
    Case,
    Snapshot,
    after_publish,
    make_case,
    make_small_case,
    snapshot,
)


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
def new(original: Case) -> Snapshot:
    return after_publish(original)


@pytest.fixture(scope="module", params=["small", pytest.param("real", marks=pytest.mark.slow)])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A store for a kill before each change of the disk: a small one, and one of a broker in the slow run."""
    directory = tmp_path_factory.mktemp("whole")
    return make_small_case(directory) if request.param == "small" else make_case(directory, STORE)
