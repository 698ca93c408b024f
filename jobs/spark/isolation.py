"""What keeps other users of the machine, and modules in the working directory, out of a Spark that runs here.

==========================  ==================================================================================
``spark.authenticate``      who connects to Spark's ports must know a secret; a local Spark makes a new one at each
                            start and keeps it in its memory
``spark.local.dir``         shuffled rows, broadcasts and sockets lie in a directory that its owner alone may enter
a program for workers       Python 3.10 knows no PYTHONSAFEPATH: ``python -m`` would look for modules in the working
                            directory before all others
==========================  ==================================================================================
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from jobs.spark.signals import deferred_signals

LOCAL_DIRS = "SPARK_LOCAL_DIRS"
"""Names the environment variable that Spark prefers to ``spark.local.dir``."""

_PROGRAM = """\
#!/bin/sh
# Called as `python -m MODULE ...`; the working directory is not searched for modules.
shift
exec '{python}' -c 'import sys
sys.path[:] = [entry for entry in sys.path if entry]
import runpy
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)' "$@"
"""

_made: list[Path] = []
_owner = os.getpid()


def private_directories(chosen: Mapping[str, str]) -> list[Path]:
    """Returns new directories of mode 0700, in the places that the user named for Spark's files, or in the one for
    temporary files. They go with ``remove_private_directories``, and when this process ends.
    """
    if not _made:
        atexit.register(remove_private_directories)
    places = os.environ.get(LOCAL_DIRS) or chosen.get("spark.local.dir", "") or tempfile.gettempdir()
    directories = []
    for place in (one.strip() for one in places.split(",") if one.strip()):
        with deferred_signals():  # one that comes between the two would leave the directory
            Path(place).mkdir(parents=True, exist_ok=True)
            directories.append(Path(tempfile.mkdtemp(prefix="rocketmq-store-spark-", dir=place)))
            _made.append(directories[-1])
    return directories


def remove_private_directories() -> None:
    """Removes what ``private_directories`` made; Spark must have ended, or be about to. A process that was forked from
    this one removes nothing.
    """
    with deferred_signals():
        while _made and os.getpid() == _owner:
            shutil.rmtree(_made.pop(), ignore_errors=True)


def worker_python(directory: Path) -> str:
    """Returns the program that workers are started with: this Python, which leaves the working directory alone."""
    if sys.version_info >= (3, 11):  # it obeys PYTHONSAFEPATH
        return sys.executable
    program = directory / "python"
    program.write_text(_PROGRAM.format(python=sys.executable.replace("'", "'\\''")), encoding="utf-8")
    program.chmod(0o700)
    return str(program)
