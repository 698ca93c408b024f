"""Which tests stay together in one process."""

from __future__ import annotations

import doctest

import pytest

scheduling = pytest.importorskip("support.scheduling")


def test_examples_give_what_they_say() -> None:
    assert doctest.testmod(scheduling).failed == 0
    assert doctest.testmod(scheduling).attempted == 4
