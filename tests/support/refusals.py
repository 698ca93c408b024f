"""What an error says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storeformat.errors import StoreFormatError

PARTS = ("what", "path", "offset", "found", "expected", "advice")


def refusal(kind: type[StoreFormatError], act: Callable[[], object]) -> dict[str, Any]:
    """The parts that the error of just this class has in which ``act`` ends."""
    with pytest.raises(kind) as caught:
        act()
    assert type(caught.value) is kind
    found = {name: getattr(caught.value, name) for name in PARTS}
    return {name: value for name, value in found.items() if value is not None}


def error_of(call: Callable[[], object]) -> tuple[type[StoreFormatError], str, str | None]:
    with pytest.raises(StoreFormatError) as caught:
        call()
    return type(caught.value), str(caught.value), caught.value.advice
