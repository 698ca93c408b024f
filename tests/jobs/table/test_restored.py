"""Which RESTORE took a load's rows away, by Delta's log alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.table.restored import Actions, commits_back_from, restored_before

LOAD = "rocketmq-store-spark/c/b/0"


def load(end: int, name: str = LOAD) -> dict[str, Any]:
    return {"txn": {"appId": name, "version": end}}


def restore(version: int | None) -> dict[str, Any]:
    return {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": version}}}


DELETE = {"commitInfo": {"operation": "DELETE", "operationParameters": {"predicate": "[]"}}}
OTHER = load(2000, "rocketmq-store-spark/c/other/0")


def history(*commits: dict[str, Any]) -> Sequence[tuple[int, Actions]]:
    """Commits from version 0 on, as they are read: the newest first."""
    return [(version, [action]) for version, action in enumerate(commits)][::-1]


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        ([load(1000), load(2000)], None),
        ([load(1000), load(2000), DELETE], None),
        ([load(1000), load(2000), restore(0)], 2),
        ([load(1000), load(2000), restore(0), OTHER], 2),
        ([load(1000), load(2000), OTHER, restore(1)], None),
        ([load(1000), load(2000), OTHER, restore(2), DELETE], None),
        ([load(1000), load(2000), restore(0), restore(1)], None),
        ([load(1000), load(2000), restore(0), restore(1), restore(2)], 4),
        ([load(1000), load(2000), restore(None)], 2),
        ([load(1000), restore(0), load(2000)], None),
        ([DELETE, restore(0)], None),
    ],
)
def test_which_restore_took_the_rows_of_a_load(commits: list[dict[str, Any]], found: int | None) -> None:
    assert restored_before(history(*commits), LOAD, 2000) == found


def test_commits_are_read_as_far_back_as_delta_kept_them(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    for version in (3, 4):
        text = "".join(f"{json.dumps(action)}\n" for action in (load(version), DELETE))
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(text, encoding="utf-8")
    assert list(commits_back_from(str(tmp_path), 4)) == [(4, [load(4), DELETE]), (3, [load(3), DELETE])]
