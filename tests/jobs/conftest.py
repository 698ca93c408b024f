"""Stores and tables of one's own that tests of several jobs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import golden
from support.store_to_start import StoreToStart, healthy_store

if TYPE_CHECKING:
    from support.loading import Bench


@pytest.fixture
def store(tmp_path: Path) -> StoreToStart:
    return healthy_store(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    from support.planting import STORE

    return golden.unpack(STORE, tmp_path)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    from support.loading import Bench

    return Bench(tmp_path)
