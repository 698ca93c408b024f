"""One store and its rebuild for all tests of publish and restore; each test gets a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.publishing import STORE, Case, Snapshot, after_publish, make_case, make_small_case, snapshot


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


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_small_case(tmp_path_factory.mktemp("small"))


@pytest.fixture(params=[("small", 13), pytest.param(("original", 1), marks=pytest.mark.slow)], ids=["small", "real"])
def faults(request: pytest.FixtureRequest) -> tuple[Case, range]:
    """A store, and before which changes of the disk a fault comes: some, in the slow run each of a broker's store."""
    name, step = request.param
    return request.getfixturevalue(name), range(0, 1000, step)
