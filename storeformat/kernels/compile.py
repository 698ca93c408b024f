"""``python -m storeformat.kernels.compile``: compiles the kernels once, so that no job has to; for set-up.

Prints which implementation this environment uses, and where its compiled code is kept.
"""

from __future__ import annotations

import os

from storeformat.kernels import active


def main() -> None:
    """Compiles the kernels into the cache and prints which implementation this environment uses."""
    kernels = active().__name__.rpartition(".")[2]
    cache = os.environ.get("NUMBA_CACHE_DIR") if kernels == "numba_kernels" else None
    print(f"{kernels}, compiled in {cache}" if cache else kernels)  # noqa: T201


if __name__ == "__main__":
    main()
