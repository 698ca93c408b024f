"""The examples in docstrings, run as they stand there."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import storeformat

WITH_EXAMPLES = {
    "storeformat.index.index_file",
    "storeformat.javacompat",
    "storeformat.javaproperties",
    "storeformat.queues.consume_queue",
    "storeformat.record.bodies",
    "storeformat.record.decode",
    "storeformat.record.message_ids",
}


def test_examples_give_what_they_say() -> None:
    found = set()
    for info in pkgutil.walk_packages(storeformat.__path__, "storeformat."):
        if "numba" in info.name or info.name.endswith("machine_words"):
            continue  # may be missing, and have none
        result = doctest.testmod(importlib.import_module(info.name))
        assert result.failed == 0, info.name
        if result.attempted:
            found.add(info.name)
    assert found >= WITH_EXAMPLES
