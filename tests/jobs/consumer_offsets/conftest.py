"""A healthy store whose groups have committed offsets."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, healthy_store


@pytest.fixture
def store(tmp_path: Path) -> StoreToStart:
    return healthy_store(tmp_path / "store")
