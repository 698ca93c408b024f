"""Reads of several bytes at once, and the check that none of them leaves a buffer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)

ROOT = Path(__file__).parents[3]
CHECKED = [
    str(Path(__file__).with_name(f"test_{name}.py"))
    for name in (
        "numba_records",
        "numba_values",
        "numba_dispatch",
        "numpy_kernels",
        "numpy_kernels_walks",
        "numba_crc",
        "machine_words",
    )
] + [str(Path(__file__).parents[1] / "record" / "test_plain_dispatch.py")]


@pytest.mark.skipif("MUTANT_UNDER_TEST" in os.environ, reason="mutants work in their own process alone")
@pytest.mark.slow
@pytest.mark.parametrize("examples", ["few", "patient"])
def test_a_kernel_that_reads_outside_is_caught_by_bounds_checks(examples: str) -> None:
    """The tests of the compiled kernels once more, every read checked; by default with few examples each."""
    if os.environ.get("NUMBA_BOUNDSCHECK"):
        from storeformat.kernels import machine_words

        assert machine_words.CHECKED
        with pytest.raises(IndexError, match="outside"):
            machine_words.load64(machine_words.memory(np.zeros(16, np.uint8)), 9)
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"NUMBA_BOUNDSCHECK": "1", "ROCKETMQ_STORE_SPARK_KERNELS": "numba"}
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--hypothesis-profile={examples}",
         "-k", "agree and not real_logs or 5.5.0 or outside" if examples == "few" else "", *CHECKED],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout[-4000:]
    assert " passed" in again.stdout


# --------------------------------------------------------------------------------------------------- compiled only here
DATA = np.arange(0x11, 0x31, dtype=np.uint8)


@pytest.mark.parametrize("bits", [8, 32, 64])
def test_words_of_each_size_are_read_and_turned_round(bits: int) -> None:
    from numba import njit

    from storeformat.kernels import machine_words

    load, memory = getattr(machine_words, f"load{bits}"), machine_words.memory

    @njit
    def read(data, at):  # type: ignore[no-untyped-def]
        return load(memory(data), at)

    size = bits // 8
    for at in (0, 3):
        assert read(DATA, at) == int.from_bytes(DATA[at : at + size].tobytes(), "little")
    if bits == 8:
        return
    swap, kind = getattr(machine_words, f"swap{bits}"), getattr(np, f"uint{bits}")

    @njit
    def turned(word):  # type: ignore[no-untyped-def]
        return swap(word)

    assert turned(kind(0x11121314)) == int.from_bytes((0x11121314).to_bytes(size, "little"), "big")


def test_pairs_of_words_are_polynomials() -> None:
    from numba import njit

    from storeformat.kernels import machine_words as mw

    pair, words, exclusive_or, fold = mw.pair, mw.words, mw.exclusive_or, mw.carryless_fold

    @njit
    def added(a, b, c, d):  # type: ignore[no-untyped-def]
        return words(exclusive_or(pair(a, b), pair(c, d)))

    @njit
    def folded(a, b, c, d):  # type: ignore[no-untyped-def]
        return words(fold(pair(a, b), pair(c, d)))

    def product(one: int, other: int) -> int:
        total = 0
        for place in range(64):
            total ^= (one << place) * (other >> place & 1)
        return total

    a, b, c, d = (0x123456789ABCDEF1, 0xF00D, 0xFFFFFFFFFFFFFFFF, 0x8000000000000001)
    kinds = [np.uint64(word) for word in (a, b, c, d)]
    assert added(*kinds) == (a ^ c, b ^ d)
    if mw.HAS_CARRYLESS_MULTIPLY:
        total = product(a, c) ^ product(b, d)
        assert folded(*kinds) == (total & (1 << 64) - 1, total >> 64)


def test_types_of_arguments_and_of_pairs() -> None:
    from llvmlite import ir
    from numba import types
    from numba.core.datamodel import default_manager

    from storeformat.kernels import machine_words as mw

    assert mw.column(types.uint8) == types.Array(types.uint8, 1, "C", readonly=True)
    assert mw.column(types.uint8, 2) == types.Array(types.uint8, 2, "C", readonly=True)
    assert mw.result(types.int32) == types.Array(types.int32, 1, "C")
    assert mw.result(types.int32, 2).mutable
    assert not mw.column(types.int32, 2).mutable
    assert mw.tuple_of(types.int32, types.int64) == types.Tuple((types.int32, types.int64))
    assert mw._Pair().name == "pair of words"
    assert mw._PairModel(default_manager, mw._Pair()).get_value_type() == ir.VectorType(ir.IntType(64), 2)
