"""What compiled kernels need of the processor and the compiler: words, byte swaps, bit scans, argument types.

Functions here compile into one or two instructions. The loads take any position of a ``memory`` and check nothing,
unless numba's own bounds checks are on (``NUMBA_BOUNDSCHECK=1``). Only little-endian processors are served: the import
fails on others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, register_model

if sys.byteorder != "little":
    raise ImportError("the compiled kernels are for little-endian processors")

_SETTINGS: Any = config

CHECKED = bool(_SETTINGS.BOUNDSCHECK)
HAS_CARRYLESS_MULTIPLY = not _SETTINGS.CPU_NAME and bool(llvm.get_host_cpu_features().get("pclmul"))

EVERY_BYTE, HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


def column(kind: Any, dimensions: int = 1) -> Any:
    """Type of an argument that is only read: arrays that may be written fit it too."""
    return types.Array(kind, dimensions, "C", readonly=True)


def result(kind: Any, dimensions: int = 1) -> Any:
    """Type of an argument that is written."""
    return types.Array(kind, dimensions, "C")


def tuple_of(*kinds: Any) -> Any:
    """Type of several results."""
    return types.Tuple(kinds)  # type: ignore[no-untyped-call]


BYTES, INT32S, INT64S = column(types.uint8), column(types.int32), column(types.int64)
WORDS = column(types.uint64)


def _instruction(result: Any, *arguments: Any) -> Callable[[Any], Any]:
    """Returns a decorator: what emits code, from a builder and values, becomes a function of these types."""

    def decorate(emit: Any) -> Any:
        @wraps(emit)  # numba asks for the names of the arguments
        def typed(typing_context: Any, *given: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                value = emit(builder, *values)
                return context.get_dummy_value() if value is None else value

            return result(*arguments), generate

        return intrinsic(typed)

    return decorate


@intrinsic
def _address(typing_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.uint64(array), generate


@njit(forceinline=True)
def memory(array):  # type: ignore[no-untyped-def]
    """Address and size of an array's bytes: how loops hand buffers to functions. An array that is handed on has its
    references counted, atomically, which took half the time of short loops.
    """
    return _address(array), np.int64(array.nbytes)  # type: ignore[call-arg]


_MEMORY = tuple_of(types.uint64, types.int64)


def _pointer(builder: Any, memory: Any, at: Any, kind: Any) -> Any:
    address = builder.add(builder.extract_value(memory, 0), at)
    return builder.inttoptr(address, kind.as_pointer())


swap32 = _instruction(types.uint32, types.uint32)(lambda builder, word: builder.bswap(word))
swap64 = _instruction(types.uint64, types.uint64)(lambda builder, word: builder.bswap(word))


@_instruction(types.int64, types.uint64)
def trailing_zeros(builder: Any, word: Any) -> Any:
    """Number of zero bits below the lowest set one of a word that is not 0."""
    return builder.cttz(word, cgutils.true_bit)


@_instruction(types.void, _MEMORY, types.intp)
def prefetch(builder: Any, memory: Any, at: Any) -> None:
    """Asks for the cache line of a place that will be written soon. Harmless for any place."""
    address, number = _pointer(builder, memory, at, ir.IntType(8)), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), (address.type, *(number,) * 3))
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]
    builder.call(fetch, (address, *(ir.Constant(number, argument) for argument in (1, 3, 1))))


class _Pair(types.Type):
    """Two words in one vector register: a polynomial of 128 bits over GF(2)."""

    def __init__(self) -> None:
        super().__init__(name="pair of words")


_PAIR = _Pair()
_PAIR_VECTOR = ir.VectorType(ir.IntType(64), 2)
_PLACES = [ir.Constant(ir.IntType(32), place) for place in (0, 1)]


@register_model(_Pair)
class _PairModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _PAIR_VECTOR)  # type: ignore[no-untyped-call]


@_instruction(_PAIR, types.uint64, types.uint64)
def pair(builder: Any, low: Any, high: Any) -> Any:
    """Two words as a pair."""
    value = builder.insert_element(ir.Constant(_PAIR_VECTOR, ir.Undefined), low, _PLACES[0])
    return builder.insert_element(value, high, _PLACES[1])


@_instruction(types.UniTuple(types.uint64, 2), _PAIR)  # type: ignore[no-untyped-call]
def words(builder: Any, value: Any) -> Any:
    """The low and the high word of a pair."""
    return cgutils.pack_array(builder, [builder.extract_element(value, place) for place in _PLACES])  # type: ignore[no-untyped-call]


@_instruction(_PAIR, _PAIR, _PAIR)
def exclusive_or(builder: Any, one: Any, other: Any) -> Any:
    """The sum of two pairs as polynomials."""
    return builder.xor(one, other)


@_instruction(_PAIR, _PAIR, _PAIR)
def carryless_fold(builder: Any, value: Any, factors: Any) -> Any:
    """The sum of the carry-less products of the two low words and of the two high ones."""
    byte = ir.IntType(8)
    kind = ir.FunctionType(_PAIR_VECTOR, (_PAIR_VECTOR, _PAIR_VECTOR, byte))
    multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")  # type: ignore[no-untyped-call]
    return builder.xor(*(builder.call(multiply, (value, factors, ir.Constant(byte, both))) for both in (0x00, 0x11)))


def _load(kind: Any, emitted: Any, size: int) -> Any:
    """Returns a function that reads so many bytes at a position, the first one lowest."""

    @_instruction(kind, _MEMORY, types.intp)
    def load(builder: Any, memory: Any, at: Any) -> Any:
        return builder.load(_pointer(builder, memory, at, emitted), align=1)

    @njit(inline="always")
    def checked(memory, at):  # type: ignore[no-untyped-def]
        if CHECKED:
            _touch(memory, at, size)
        return load(memory, at)

    return checked


@njit
def _touch(memory, at, count):  # type: ignore[no-untyped-def]
    if at < 0 or at + count > memory[1]:
        raise IndexError("a kernel reads outside of its buffer")


load8 = _load(types.uint8, ir.IntType(8), 1)
load32 = _load(types.uint32, ir.IntType(32), 4)
load64 = _load(types.uint64, ir.IntType(64), 8)
load_pair = _load(_PAIR, _PAIR_VECTOR, 16)


@_instruction(types.void, _MEMORY, types.intp, types.uint64)
def _store64(builder: Any, memory: Any, at: Any, word: Any) -> None:
    builder.store(word, _pointer(builder, memory, at, ir.IntType(64)), align=1)


@njit(inline="always")
def store64(memory, at, word):  # type: ignore[no-untyped-def]
    """Writes eight bytes at a position, the lowest first."""
    if CHECKED:
        _touch(memory, at, 8)
    _store64(memory, at, word)


@njit(forceinline=True)
def next_byte(memory, at, end, pattern):  # type: ignore[no-untyped-def]
    """Position of the next byte in [at, end) that all bytes of ``pattern`` are, or end. Padding is read, not used."""
    while at < end:
        word = load64(memory, at) ^ pattern
        marks = (word - EVERY_BYTE) & ~word & HIGH_BITS
        if marks:
            return min(at + (trailing_zeros(marks) >> 3), end)
        at += 8
    return end
