"""A process that dies before one of its changes of files, played within this one: that change and all after it raise.

What a kill leaves is there at once, without a process; ``support.killing`` kills in earnest. What Python's own file
objects write counts with the opening of their file.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.patching import stand_in

from storeformat.storage import broker_lock, durable, extents, files, local_files, outputs

MODULES = (broker_lock, durable, extents, files, local_files, outputs)
CHANGES = ("chmod", "fsync", "ftruncate", "makedirs", "mkdir", "pwrite", "rename", "replace", "rmdir",
           "unlink", "utime", "write")  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Died(BaseException):
    """No handler of exceptions sees a kill."""


@contextmanager
def dying(before: int) -> Iterator[None]:
    """Change number ``before`` (from 0) of the storage modules raises ``Died``, and so does each after it."""
    numbers = itertools.count()

    def last_words(change: Callable[..., Any]) -> Callable[..., Any]:
        def tried(*given: Any, **more: Any) -> Any:
            if next(numbers) >= before:
                raise Died
            return change(*given, **more)

        return tried

    def opened(path: Any, flags: int, *given: Any, **more: Any) -> int:
        return int((last_words(os.open) if flags & WRITING else os.open)(path, flags, *given, **more))

    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            stand_in(patch, module, "os", open=opened, **{name: last_words(getattr(os, name)) for name in CHANGES})
        yield
