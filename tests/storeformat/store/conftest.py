"""A store, and a source whose files take the place of the store's."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.swapping import NEW, OLD, journal, write

from storeformat.store import swap
from storeformat.store.swap import Swap


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "store", OLD)
    return tmp_path / "store"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path / "made", NEW)
    return tmp_path / "made"


@pytest.fixture
def begun(root: Path, source: Path) -> Swap:
    return swap.begin(str(root), journal(source, papers=("manifest.json",)))
