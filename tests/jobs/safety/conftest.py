"""A healthy store for each test of a rule, to be damaged by it, on a disk that is half empty, whatever it really is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, healthy_store

from storeformat.storage import local_status
from storeformat.storage.local_status import Space


@pytest.fixture(autouse=True)
def half_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_status, "space_of", lambda path: Space(1 << 40, 1 << 39, 1 << 39))


@pytest.fixture
def store(tmp_path: Path) -> StoreToStart:
    return healthy_store(tmp_path / "store")
