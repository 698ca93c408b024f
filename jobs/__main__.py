"""``python -m jobs [Spark's options] JOB [options]``, and the file that spark-submit runs."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run the command line of this process."""
    gc.set_threshold(200_000)  # a store of 20,000 queues is that many objects without a cycle
    # A script's own directory leads sys.path: modules of ours could be taken for somebody else's top-level ones.
    sys.path[:] = [entry for entry in sys.path if entry != str(HERE)]
    if str(HERE.parent) not in sys.path and HERE.parent.is_dir():
        sys.path.insert(0, str(HERE.parent))
    try:
        from jobs.cli import command_line  # noqa: PLC0415  (only now the path is right)

        command_line.make_usable()
        code = command_line.main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130  # before anything was begun
    gc.freeze()  # else the end looks through all of them once more
    return code


if __name__ == "__main__":
    sys.exit(main())
