"""Replacing what one module of the program sees of the standard library, and no other: threads of the process go on."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def stand_in(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, **replaced: Any) -> None:
    """Gives ``module`` its own copy of the standard module that it imports as ``name``, with these members replaced."""
    monkeypatch.setattr(module, name, SimpleNamespace(**{**vars(getattr(module, name)), **replaced}))
