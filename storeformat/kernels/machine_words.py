"""What compiled kernels need of the processor and the compiler: words, byte swaps, bit scans, argument types.

Functions here compile into one or two instructions. The loads take any position of a ``memory`` and check nothing,
unless numba's own bounds checks are on (``NUMBA_BOUNDSCHECK=1``). Only little-endian processors are served: the import
fails on others.
"""

from __future__ import annotations

import sys
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
_WORD_TYPES: dict[int, Any] = {8: types.uint8, 32: types.uint32, 64: types.uint64}

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


def _instruction(generator: Any) -> Any:
    return intrinsic(generator)


@_instruction
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
    return _address(array), np.int64(array.nbytes)


def _pointer(builder: Any, arguments: Any, kind: Any) -> Any:
    address = builder.add(builder.extract_value(arguments[0], 0), arguments[1])
    return builder.inttoptr(address, kind.as_pointer())


def _load(bits: int) -> Any:
    result = _WORD_TYPES[bits]

    @_instruction
    def load(typing_context: Any, memory: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(_pointer(builder, arguments, ir.IntType(bits)), align=1)

        return result(memory, types.intp), generate

    return load


def _swap(bits: int) -> Any:
    result = _WORD_TYPES[bits]

    @_instruction
    def swap(typing_context: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bswap(arguments[0])

        return result(result), generate

    return swap


_load8, _load32, _load64 = _load(8), _load(32), _load(64)
swap32, swap64 = _swap(32), _swap(64)


@_instruction
def _store64(typing_context: Any, memory: Any, at: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(builder, arguments, ir.IntType(64)), align=1)
        return context.get_dummy_value()

    return types.void(memory, types.intp, types.uint64), generate


@_instruction
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Number of zero bits below the lowest set one of a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    return types.int64(types.uint64), generate


@_instruction
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Asks for the cache line of an element that will be written soon. Harmless for any index."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        fetch = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(ir.VoidType(), (address.type, *(number,) * 3)), "llvm.prefetch.p0i8"
        )
        builder.call(fetch, (address, *(ir.Constant(number, argument) for argument in (1, 3, 1))))
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


class _Pair(types.Type):
    """Two words in one vector register: a polynomial of 128 bits over GF(2)."""

    def __init__(self) -> None:
        super().__init__(name="pair of words")


_PAIR = _Pair()
_PAIR_VECTOR = ir.VectorType(ir.IntType(64), 2)


@register_model(_Pair)
class _PairModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _PAIR_VECTOR)  # type: ignore[no-untyped-call]


def _vector(builder: Any, first: Any, second: Any) -> Any:
    places = [ir.Constant(ir.IntType(32), place) for place in (0, 1)]
    value = builder.insert_element(ir.Constant(_PAIR_VECTOR, ir.Undefined), first, places[0])
    return builder.insert_element(value, second, places[1])


@_instruction
def pair(typing_context: Any, low: Any, high: Any) -> Any:
    """Two words as a pair."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _vector(builder, *arguments)

    return _PAIR(types.uint64, types.uint64), generate


@_instruction
def words(typing_context: Any, value: Any) -> Any:
    """The low and the high word of a pair."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        both = [builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), place)) for place in (0, 1)]
        return context.make_tuple(builder, signature.return_type, both)

    two: Any = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]
    return two(_PAIR), generate


@_instruction
def exclusive_or(typing_context: Any, one: Any, other: Any) -> Any:
    """The sum of two pairs as polynomials."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.xor(*arguments)

    return _PAIR(_PAIR, _PAIR), generate


@_instruction
def carryless_fold(typing_context: Any, value: Any, factors: Any) -> Any:
    """The sum of the carry-less products of the two low words and of the two high ones."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        kind = ir.FunctionType(_PAIR_VECTOR, (_PAIR_VECTOR, _PAIR_VECTOR, byte))
        multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")  # type: ignore[no-untyped-call]
        return builder.xor(*(builder.call(multiply, (*arguments, ir.Constant(byte, both))) for both in (0x00, 0x11)))

    return _PAIR(_PAIR, _PAIR), generate


@_instruction
def _load_pair(typing_context: Any, memory: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(builder, arguments, _PAIR_VECTOR), align=1)

    return _PAIR(memory, types.intp), generate


@njit(inline="always")
def load_pair(memory, at):  # type: ignore[no-untyped-def]
    """The sixteen bytes at a position as a pair."""
    if CHECKED:
        _touch(memory, at, 16)
    return _load_pair(memory, at)


@njit(inline="always")
def load8(memory, at):  # type: ignore[no-untyped-def]
    """The byte at a position."""
    if CHECKED:
        _touch(memory, at, 1)
    return _load8(memory, at)


@njit(inline="always")
def load32(memory, at):  # type: ignore[no-untyped-def]
    """The four bytes at a position, the first one lowest."""
    if CHECKED:
        _touch(memory, at, 4)
    return _load32(memory, at)


@njit(inline="always")
def load64(memory, at):  # type: ignore[no-untyped-def]
    """The eight bytes at a position, the first one lowest."""
    if CHECKED:
        _touch(memory, at, 8)
    return _load64(memory, at)


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


@njit
def _touch(memory, at, count):  # type: ignore[no-untyped-def]
    if at < 0 or at + count > memory[1]:
        raise IndexError("a kernel reads outside of its buffer")
