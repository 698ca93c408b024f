"""Replacing what one module of the program sees of the standard library, and no other: threads of the process go on."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def stand_in(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, **replaced: Any) -> None:
    """Gives ``module`` its own copy of the standard module that it imports as ``name``, with these members replaced.

    >>> from jobs.contract import report
    >>> with pytest.MonkeyPatch.context() as patch:
    ...     stand_in(patch, report, "time", time=lambda: 7)
    ...     report.time.time()
    7
    """
    members = {**vars(getattr(module, name)), **replaced}
    monkeypatch.setattr(module, name, SimpleNamespace(**members))
