"""Where numba keeps the compiled kernels: by what their sources say, not by where these lie.

numba would key them by the path of the source. On an executor that is a zip in a directory of the application's own, so
every application would compile anew (9 s a process) and leave its result for nobody. Here the directory's name and the
stamp hold a digest of all sources (``storeformat.kernels.cache_directory``), so wherever the same sources lie, what was
compiled once is found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import config
from numba.core.caching import _CacheLocator

from storeformat.kernels import cache_directory, source_name


class ByContent(_CacheLocator):
    """numba's question and our answers, for one function of the kernels."""

    def __init__(self, directory: str, line: int) -> None:
        self._directory, self._line = directory, line

    def get_cache_path(self) -> str:
        return f"{self._directory}/by-content"

    def get_source_stamp(self) -> str:
        return source_name()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, path: str) -> ByContent | None:
        """Returns a locator if there is a directory to write to."""
        directory = os.environ.get("NUMBA_CACHE_DIR") or cache_directory()
        found = cls(directory, function.__code__.co_firstlineno) if directory else None
        try:
            if found is not None:
                found.ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:
            return None
        return found


@contextmanager
def kept_by_content() -> Iterator[None]:
    """Within it numba asks ``ByContent``, then its own; a version that cannot be told goes on asking its own."""
    own = ["UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator", "ZipCacheLocator"]
    settings: Any = config
    before = getattr(settings, "CACHE_LOCATOR_CLASSES", "")
    settings.CACHE_LOCATOR_CLASSES = ",".join([f"{__name__}.{ByContent.__name__}", *own])
    try:
        yield
    finally:
        settings.CACHE_LOCATOR_CLASSES = before
