"""Which implementation of the kernels a process uses."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

import pytest

from storeformat import kernels
from storeformat.kernels import numpy_kernels
from storeformat.kernels.protocol import Kernels

numba_kernels: Any = pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)


def test_the_implementation_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_STORE_SPARK_KERNELS", "numpy")
    kernels.active.cache_clear()
    assert kernels.active() is numpy_kernels
    monkeypatch.setenv("ROCKETMQ_STORE_SPARK_KERNELS", "numba")
    kernels.active.cache_clear()
    assert kernels.active() is numba_kernels
    monkeypatch.delenv("ROCKETMQ_STORE_SPARK_KERNELS")
    monkeypatch.setitem(sys.modules, "storeformat.kernels.numba_kernels", None)  # as if numba were not installed
    kernels.active.cache_clear()
    assert kernels.active() is numpy_kernels
    kernels.active.cache_clear()


def test_little_work_prefers_numpy_and_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_preferred", "auto")
    monkeypatch.delenv("ROCKETMQ_STORE_SPARK_KERNELS", raising=False)
    kernels.prefer_numpy()
    assert kernels.active() is numpy_kernels
    monkeypatch.setenv("ROCKETMQ_STORE_SPARK_KERNELS", "numba")
    kernels.active.cache_clear()
    assert kernels.active() is numba_kernels
    kernels.active.cache_clear()


def test_both_implementations_have_every_kernel_and_nothing_else() -> None:
    functions = {name for name in vars(Kernels) if not name.startswith("_")} | {"NAME"}
    found = [one for one in vars(numpy_kernels).values() if isinstance(one, FunctionType)]
    own = {one.__name__ for one in found if one.__module__ == numpy_kernels.__name__ and one.__name__[0] != "_"}
    assert own | {"NAME"} == set(numba_kernels.__all__) == functions
    assert (numpy_kernels.NAME, numba_kernels.NAME) == ("numpy", "numba")
