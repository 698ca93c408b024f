"""A real store of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import golden
from support.planting import STORE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return golden.unpack(STORE, tmp_path)
