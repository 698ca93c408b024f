"""How tests are shared out to processes, with ``--dist loadfile``: by file, and tests with real brokers by release; in
which order, so that cores are busy while brokers wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from xdist.scheduler import LoadFileScheduling

T = TypeVar("T")

_RELEASE = re.compile(r"\[.*?(\d\.\d+\.\d+)")
_SHARE_A_CRASH = {"test_drill.py", "test_replica_drill.py", "test_salvage_drill.py"}
"""Drills that go on from one broker's crash (fixture ``crashed``)."""


_BUSY = ("spark", "realstore", "notebook", "hadoop")
"""Marks of tests that keep a core busy for seconds."""


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


def spread(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Returns the tests, those that stay together one after the other, in the order that takes least time. A whole
    broker takes ten seconds to stop and hardly any of a core: what runs one is spread over what keeps cores busy. What
    is quick comes last, so that all processes end at once.
    """
    together: dict[str, list[pytest.Item]] = {}
    for item in items:
        together.setdefault(scope_of(item.nodeid), []).append(item)

    def marked(*names: str) -> Callable[[list[pytest.Item]], bool]:
        return lambda group: any(item.get_closest_marker(name) for item in group for name in names)

    waiting = [group for group in together.values() if marked("broker")(group)]
    busy = [group for group in together.values() if marked(*_BUSY)(group) and group not in waiting]
    quick = [group for group in together.values() if group not in waiting and group not in busy]
    return [item for group in (*evenly(waiting, busy), *quick) for item in group]


def evenly(some: Sequence[T], others: Sequence[T]) -> list[T]:
    """Returns both, each in its order and each spread over the whole.

    >>> evenly("ab", "12345")
    ['a', '1', '2', '3', 'b', '4', '5']
    """
    places = [(number / len(row), row is others, value) for row in (some, others) for number, value in enumerate(row)]
    return [value for *_, value in sorted(places, key=lambda place: place[:2])]
