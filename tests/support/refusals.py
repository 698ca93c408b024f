"""What an error says, part by part, without the parts that it does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storeformat.errors import StoreFormatError

PARTS = ("what", "path", "offset", "found", "expected", "advice")


def refusal(kind: type[StoreFormatError], act: Callable[[], object]) -> dict[str, Any]:
    """The parts of the error of just this class that ``act`` ends in."""
    with pytest.raises(kind) as caught:
        act()
    assert type(caught.value) is kind
    found = {name: getattr(caught.value, name) for name in PARTS}
    return {name: value for name, value in found.items() if value is not None}
