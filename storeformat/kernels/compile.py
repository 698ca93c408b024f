"""``python -m storeformat.kernels.compile``: compiles the kernels once, so that no job has to; for set-up.

Prints which implementation this environment uses, and where its compiled code is kept.
"""

from __future__ import annotations

import os

from storeformat.kernels import active


def main() -> None:
    """Compiles the kernels into the cache and prints which implementation this environment uses."""
    name = active().NAME
    cache = os.environ.get("NUMBA_CACHE_DIR") if name == "numba" else None
    print(f"{name} kernels, compiled in {cache}" if cache else f"{name} kernels")  # noqa: T201


if __name__ == "__main__":
    main()
