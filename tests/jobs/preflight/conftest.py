"""A healthy store for each test of a rule, to be damaged by it, on a disk that is half empty, whatever it really is."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from support import store_to_start

from jobs.preflight.preflight import Replica, judge
from jobs.preflight.stopped_store import Answer, StoppedStore
from storeformat.storage import files
from storeformat.storage.files import Space

_PHRASE = re.compile(r"[a-z0-9/].*[^\sX]", re.DOTALL)
"""Begins small, with a number or with a path, and is no leftover."""


@pytest.fixture(autouse=True)
def half_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "space_of", lambda path: Space(1 << 40, 1 << 39, 1 << 39))


@pytest.fixture(autouse=True)
def each_reason_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever rules say in these tests: what is wrong, what was found, and, if it is unsafe, what to do."""

    def judged(stopped: StoppedStore, replicas: Sequence[Replica] = ()) -> Answer:
        answer = judge(stopped, replicas)
        for reason in answer.reasons:
            assert _PHRASE.fullmatch(reason.what)
            assert _PHRASE.fullmatch(reason.cure) or (reason.cure == "" and not reason.unsafe)
        return answer

    monkeypatch.setattr(store_to_start, "judge", judged)
