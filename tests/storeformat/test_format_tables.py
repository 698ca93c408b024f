"""FORMAT.md against the code, and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import struct
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import storeformat
from storeformat import message
from storeformat.index import index_file
from storeformat.kernels.columns import ENTRY_HEAD
from storeformat.queues import batch_consume_queue, consume_queue, consume_queue_ext, rocksdb_pairs
from storeformat.store import checkpoint

# -------------------------------------------------------------------------------------------------------- format tables
DOCUMENT = Path(storeformat.__file__).with_name("FORMAT.md").read_text()
Field = tuple[int, str, str]


def documented(name: str) -> list[Field]:
    """The rows of the table after a comment with this name: offset, type and field."""
    _, _, rest = DOCUMENT.partition(f"<!-- fields: {name} -->\n")
    rows = [line.strip("| ").split("|") for line in rest.split("\n\n")[0].splitlines()[2:]]
    return [(int(row[0]), row[1].strip(), row[2].strip()) for row in rows]


def of_dtype(kind: np.dtype[np.void]) -> list[Field]:
    found = []
    for name in kind.names or ():
        of, offset = kind.fields[name][:2] if kind.fields else (kind, 0)
        assert of.kind == "V" or of.byteorder == ">", name
        text = f"bytes {of.itemsize}" if of.kind == "V" else f"{of.kind}{8 * of.itemsize}"
        found.append((int(offset), text, name))
    return found


def of_struct(layout: struct.Struct, names: list[str]) -> list[Field]:
    found, offset = [], 0
    assert layout.format[0] == ">"
    for (count, code), name in zip(re.findall(r"(\d*)([ixq])", expanded(layout.format)), names, strict=True):
        size = {"i": 4, "q": 8, "x": 1}[code] * int(count or 1)
        found.append((offset, f"bytes {size}" if code == "x" else f"i{8 * size}", name))
        offset += size
    return found


def expanded(layout: str) -> str:
    """``>6q`` as ``>qqqqqq``; bytes that are skipped stay together."""
    return re.sub(r"(\d+)([iq])", lambda found: found[2] * int(found[1]), layout)


LAYOUTS = {
    "record head": of_dtype(message.head_dtype(message.HOST_V4, message.HOST_V4)),
    "dledger entry": of_struct(
        ENTRY_HEAD, ["magic", "size", "index", "term", "pos", "channel, chainCrc, bodyCrc", "body_length", "total_size"]
    ),
    "consume-queue unit": of_dtype(consume_queue.UNIT),
    "batch unit": of_dtype(batch_consume_queue.UNIT),
    "extended unit": of_dtype(consume_queue_ext.UNIT_HEAD),
    "rocksdb value": of_dtype(rocksdb_pairs.VALUE),
    "index header": of_dtype(index_file.HEADER),
    "index entry": of_dtype(index_file.ENTRY),
    "checkpoint": of_struct(checkpoint.FIELDS, [field.name for field in fields(checkpoint.StoreCheckpoint)]),
}


def test_every_table_of_fields_is_compared() -> None:
    assert re.findall(r"<!-- fields: (.*) -->", DOCUMENT) == list(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_documented_fields_are_those_of_the_code(name: str) -> None:
    assert documented(name) == LAYOUTS[name]


def test_every_module_that_is_named_exists() -> None:
    root = Path(storeformat.__file__).parent
    linked = re.findall(r"\]\(([^)]+)\)", DOCUMENT)
    assert len(set(linked)) > 10
    assert [path for path in sorted(set(linked)) if not (root / path).is_file()] == []


# ------------------------------------------------------------------------------------------------------------- doctests
WITH_EXAMPLES = (
    "index.index_file.key_hash", "javacompat.java_hash", "javacompat.parse_int", "javaproperties.parse_properties",
    "queues.consume_queue.pack_units", "queues.consume_queue.parse_units", "record.bodies.uncompressed",
    "record.decode.decode", "record.message_ids.parse_offset_message_id", "store.checkpoint.parse_checkpoint",
)  # fmt: skip


def test_examples_give_what_they_say() -> None:
    found = set()
    for info in pkgutil.walk_packages(storeformat.__path__, "storeformat."):
        if "numba" in info.name or info.name.endswith("machine_words"):
            continue  # may be missing, and have none
        for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(info.name)):
            if example.examples:
                assert doctest.DocTestRunner().run(example).failed == 0, example.name
                found.add(example.name)
    assert found >= {f"storeformat.{name}" for name in WITH_EXAMPLES}
