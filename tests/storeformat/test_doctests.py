"""The examples in docstrings are run; the functions that an outsider calls first have one."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import storeformat

WITH_EXAMPLES = {
    "storeformat.index.index_file.key_hash",
    "storeformat.javacompat.java_hash",
    "storeformat.javacompat.parse_int",
    "storeformat.javaproperties.parse_properties",
    "storeformat.queues.consume_queue.pack_units",
    "storeformat.queues.consume_queue.parse_units",
    "storeformat.record.bodies.uncompressed",
    "storeformat.record.decode.decode",
    "storeformat.record.message_ids.parse_offset_message_id",
    "storeformat.store.checkpoint.parse_checkpoint",
    "storeformat.store.layout.apply_settings",
}


def test_examples_give_what_they_say() -> None:
    found = set()
    for info in pkgutil.walk_packages(storeformat.__path__, "storeformat."):
        if "numba" in info.name or info.name.endswith("machine_words"):
            continue  # may be missing, and have none
        for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(info.name)):
            if example.examples:
                assert doctest.DocTestRunner().run(example).failed == 0, example.name
                found.add(example.name)
    assert found >= WITH_EXAMPLES
