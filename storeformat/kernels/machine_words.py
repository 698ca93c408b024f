"""What compiled kernels need of the processor: unaligned words, byte swaps, bit scans, carry-less products.

Functions here compile into one or two instructions. The loads take any position of a ``uint8`` array and check nothing,
unless numba's own bounds checks are on (``NUMBA_BOUNDSCHECK=1``). Only little-endian processors are served: the import
fails on others.
"""

from __future__ import annotations

import sys
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.extending import intrinsic

if sys.byteorder != "little":
    raise ImportError("the compiled kernels are for little-endian processors")

_SETTINGS: Any = config
_WORDS: dict[int, Any] = {32: types.uint32, 64: types.uint64}

CHECKED = bool(_SETTINGS.BOUNDSCHECK)
HAS_CARRYLESS_MULTIPLY = not _SETTINGS.CPU_NAME and bool(llvm.get_host_cpu_features().get("pclmul"))


def _instruction(generator: Any) -> Any:
    return intrinsic(generator)


def _load(bits: int) -> Any:
    result = _WORDS[bits]

    @_instruction
    def load(typing_context: Any, buffer: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.gep(array.data, [arguments[1]])
            pointer = builder.bitcast(address, ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return result(buffer, types.intp), generate

    return load


def _swap(bits: int) -> Any:
    result = _WORDS[bits]

    @_instruction
    def swap(typing_context: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bswap(arguments[0])

        return result(result), generate

    return swap


_load32, _load64 = _load(32), _load(64)
swap32, swap64 = _swap(32), _swap(64)


@_instruction
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Number of zero bits below the lowest set one of a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    return types.int64(types.uint64), generate


@_instruction
def carryless_fold(typing_context: Any, low: Any, high: Any, low_factor: Any, high_factor: Any) -> Any:
    """The 128 bits of low * low_factor ^ high * high_factor, polynomials over GF(2), as two words, low one first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, byte = ir.IntType(64), ir.IntType(8)
        pair = ir.VectorType(word, 2)
        multiply = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(pair, (pair, pair, byte)), "llvm.x86.pclmulqdq"
        )
        places = [ir.Constant(ir.IntType(32), place) for place in (0, 1)]

        def vector(first: Any, second: Any) -> Any:
            value = builder.insert_element(ir.Constant(pair, ir.Undefined), first, places[0])
            return builder.insert_element(value, second, places[1])

        state, factors = vector(arguments[0], arguments[1]), vector(arguments[2], arguments[3])
        products = [builder.call(multiply, (state, factors, ir.Constant(byte, both))) for both in (0x00, 0x11)]
        folded = builder.xor(*products)
        words = [builder.extract_element(folded, place) for place in places]
        return context.make_tuple(builder, signature.return_type, words)

    pair_of_words: Any = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]
    return pair_of_words(*(types.uint64,) * 4), generate


@njit(inline="always")
def load32(buffer, at):  # type: ignore[no-untyped-def]
    """The four bytes at a position, the first one lowest."""
    if CHECKED:
        _touch(buffer, at, 4)
    return _load32(buffer, at)


@njit(inline="always")
def load64(buffer, at):  # type: ignore[no-untyped-def]
    """The eight bytes at a position, the first one lowest."""
    if CHECKED:
        _touch(buffer, at, 8)
    return _load64(buffer, at)


@njit
def _touch(buffer, at, count):  # type: ignore[no-untyped-def]
    if at < 0 or at + count > len(buffer):
        raise IndexError("a kernel reads outside of its buffer")
