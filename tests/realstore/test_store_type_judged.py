"""``storeType`` against what is in the store: what ``preflight`` says, and what a store of that type then serves."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.real_store import Opened, RealStore, RealStoreFailed
from support.rebuilding import preflight_here

from jobs.preflight.stopped_store import Answer

pytestmark = pytest.mark.realstore

SETTINGS = {"mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 400, "messageIndexEnable": False}
FILES, ROCKSDB = {"storeType": "default"}, {"storeType": "defaultRocksDB"}


def said(root: Path, release: str, settings: Mapping[str, Any]) -> Answer:
    return preflight_here(root, {**SETTINGS, "fileReservedTime": 99_999, **settings}, release)


def names_store_type(answer: Answer) -> bool:
    return any(reason.rule == "store_type" and reason.unsafe for reason in answer.reasons)


def served(opened: Opened) -> set[int]:
    return {offset for row in opened.answers.get("queues", ()) for offset in row["commitLogOffsets"]}


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_queues_of_the_other_kind_are_not_served(release: str, tmp_path: Path) -> None:
    """The same messages in both kinds, from one seed; which queues a database has, its pairs say."""
    judge, messages = RealStore(release), set()
    for name, own, other in (("files", FILES, ROCKSDB), ("rocksdb", ROCKSDB, FILES)):
        (written,) = judge.write(tmp_path / name, 1, seed=81_000, settings={**SETTINGS, **own}, messages=900)
        assert len(list((written.root / "commitlog").iterdir())) > 11
        against, after = tmp_path / f"{name}-against", tmp_path / f"{name}-after"
        for root in (against, after):
            shutil.copytree(written.root, root)
        answers = said(against, release, other), said(after, release, own)
        assert [names_store_type(answer) for answer in answers] == [True, False], [one.lines() for one in answers]
        (opened,) = judge.open([after], own)
        assert opened.store.loaded
        if name == "files":
            messages = served(opened)
        else:
            (pairs,) = judge.rocksdb_pairs([after])
            assert messages <= {int.from_bytes(value[:8], "big") for value in pairs["default"].values()}
        (opened,) = judge.open([against], other)
        if release == "5.5.0":  # 5.3.3 dispatches the whole log again where there are no queues, after a clean stop
            assert served(opened) < messages, f"{name}: against the advice messages are lost, after the cure none"


def test_a_database_on_the_other_path_ends_the_start(tmp_path: Path) -> None:
    judge = RealStore("5.5.0")
    (written,) = judge.write(tmp_path / "written", 1, seed=82_000, settings={**SETTINGS, **ROCKSDB}, messages=60)
    apart = {**ROCKSDB, "useSeparateStorePathForRocksdbCQ": True}
    assert names_store_type(said(written.root, "5.5.0", apart))
    with pytest.raises(RealStoreFailed, match="maybe incompatible config"):
        judge.open([written.root], apart)
