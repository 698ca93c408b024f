"""A task's expected failures are its last row; defects, and what Spark is to try again, stay exceptions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from storeformat.errors import DamagedLog, WriteFailed
from udfs import failures
from udfs.failures import Failure, Told


def task(items: Iterator[int | Exception]) -> Iterator[int]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


FULL = OSError(28, "No space left on device", "/full/x")
DAMAGED = DamagedLog("bad size", offset=7, advice="salvage")


@pytest.mark.parametrize("error", [FULL, DAMAGED, WriteFailed("changed")])
def test_a_failure_is_the_last_row_and_survives_the_way(error: Exception) -> None:
    one, failure = pickle.loads(pickle.dumps(list(Told(task, attempts=1)(iter([1, error, 2])))))
    assert (one, type(failure), type(failure.error)) == (1, Failure, type(error))
    assert (str(failure.error), vars(failure.error)) == (str(error), vars(error))


def test_a_defect_stays_an_exception() -> None:
    with pytest.raises(KeyError):
        list(Told(task, attempts=1)(iter([KeyError("x")])))


@pytest.mark.parametrize("error", [FULL, WriteFailed("changed")])
def test_what_could_be_read_elsewhere_is_tried_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)):
        list(Told(task, attempts=4)(iter([error])))
    monkeypatch.setattr(failures, "_attempt", lambda: 4)
    assert list(Told(task, attempts=4)(iter([error]))) == [Failure(error)]  # type: ignore[arg-type]
    assert [type(row) for row in Told(task, attempts=9)(iter([DAMAGED]))] == [Failure]
