"""``spark-submit.sh --pack FILE``: the Python packages that tasks need, as an archive for Spark's ``--archives``.

=====================  =======================================================================================
in the archive         what
=====================  =======================================================================================
``bin/python``         runs a Python of the same version that the machine has, with the packages beside it
``packages/``          those of ``PACKED`` that are installed, and what they require. Spark brings its own, and the
                       program itself comes with every job
=====================  =======================================================================================

Runs inside the environment that was set up, and needs only the standard library.
"""

from __future__ import annotations

import importlib.metadata
import io
import re
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from storeformat.storage import local_files

PACKED = (
    "numpy", "pyarrow", "numba", "rocksdict", "hdfs-native", "fsspec", "deltalake", "delta-spark", "prometheus-client",
)  # fmt: skip
"""What tasks need, and drivers: in cluster mode a driver's Python is that of the executors."""
FROM_SPARK = frozenset({"pyspark", "py4j"})
PROGRAM = """\
#!/bin/sh
# Any Python {version} of this machine, with the packages that came with the job.
here=$(CDPATH='' cd -P -- "$(dirname -- "$0")/.." && pwd)
export PYTHONPATH="$here/packages${{PYTHONPATH:+:$PYTHONPATH}}"
for candidate in python{version} python3; do
    if [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = {version} ]; then
        exec "$candidate" "$@"
    fi
done
echo "Python {version} is needed on $(uname -n)" >&2
exit 69
"""


def pack(target: Path) -> None:
    """Writes the archive; it is there when it is whole."""
    program = PROGRAM.format(version="{}.{}".format(*sys.version_info[:2])).encode()
    with (
        local_files.replacing(str(target)) as whole,
        tarfile.open(fileobj=whole, mode="w:gz", compresslevel=1) as archive,
    ):
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(program), 0o755
        archive.addfile(entry, io.BytesIO(program))
        for name in with_required(PACKED):
            for file in importlib.metadata.files(name) or ():
                if file.suffix != ".pyc" and file.parts[0] != ".." and "tests" not in file.parts:
                    archive.add(str(file.locate()), f"packages/{file}", recursive=False)


def with_required(names: Iterable[str]) -> list[str]:
    """Returns the packages of these names that are installed, and those that they require, but for Spark."""
    waiting, found = list(names), list[str]()
    while waiting:
        name = re.sub("[-_.]+", "-", waiting.pop(0)).lower()
        if name in found or name in FROM_SPARK:
            continue
        try:
            required = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        found.append(name)
        waiting += [match[0] for one in required if "extra ==" not in one and (match := re.match(r"[\w.-]+", one))]
    return found
