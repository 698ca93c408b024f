"""How tests are shared out to processes, with ``--dist loadfile``: by file, and tests with real brokers by release."""

from __future__ import annotations

import re
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

_RELEASE = re.compile(r"\[.*?(\d\.\d+\.\d+)")
_SHARE_A_CRASH = {"test_drill.py", "test_replica_drill.py", "test_salvage_drill.py"}
"""Drills that go on from one broker's crash (fixture ``crashed``)."""


class LoadReleases(LoadFileScheduling):
    """A file of tests stays in one process, with its fixtures; where they are made for each release of a broker, what
    concerns one release does.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """Returns the name of what a test stays together with.

    >>> scope_of("tests/drill/test_drill.py::TestVerify::test_it[5.3.3]")
    'crashed 5.3.3'
    >>> scope_of("tests/realstore/test_files_judged.py::test_it[False-4.9.8]")
    'tests/realstore/test_files_judged.py 4.9.8'
    >>> scope_of("tests/jobs/test_x.py::test_it[base-5.3.3]")
    'tests/jobs/test_x.py'
    """
    file = nodeid.partition("::")[0]
    found = _RELEASE.search(nodeid) if file.startswith(("tests/drill/", "tests/realstore/")) else None
    if found is None:
        return file
    return f"{'crashed' if Path(file).name in _SHARE_A_CRASH else file} {found[1]}"
