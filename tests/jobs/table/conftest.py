"""What the tests of loads share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.loading import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
