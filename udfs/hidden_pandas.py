"""pandas, out of sight of pyarrow where nothing needs it.

pyarrow imports pandas at its first array, to see whether the values are from there: 0.3 s in each process. Of ours only
Spark needs it: ``mapInArrow`` refuses to run without pandas.
"""

from __future__ import annotations

import sys


class _Hide:
    """A finder of modules that says there is no pandas; not one of importlib.abc, whose import takes 10 ms."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is hidden", name=name)


_HIDE = _Hide()


def hide() -> None:
    """Lets no import of pandas in this process succeed from now on, nor in processes that are forked from it."""
    sys.meta_path.insert(0, _HIDE)


def show() -> None:
    """Lets pandas be imported again."""
    if _HIDE in sys.meta_path:
        sys.meta_path.remove(_HIDE)
