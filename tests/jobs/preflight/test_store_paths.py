"""Directories that a broker.conf names and that are missing, empty, or another store's: never safe, and why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.store_to_start import StoreToStart, healthy_store

from jobs.preflight.reason import Reason

RULE = "store_path"


def test_a_store_that_broker_conf_names(store: StoreToStart) -> None:
    """Also by another name of the same directory."""
    link = store.root.parent / "link"
    link.symlink_to(store.root)
    for root in (store.root, link, f"{store.root}/", f" {store.root} "):
        store.conf |= {"storePathRootDir": str(root), "storePathCommitLog": f"{root}".strip() + "/commitlog"}
        assert store.answer().reasons == ()


@pytest.mark.parametrize(("there", "which"), [(True, "is another store"), (False, "does not exist")])
def test_another_store(store: StoreToStart, tmp_path: Path, there: bool, which: str) -> None:
    """One reason, and not one for the log that goes with it."""
    other = tmp_path / "other"
    if there:
        healthy_store(other)
    store.conf |= {"storePathRootDir": str(other), "storePathCommitLog": f"{other}/commitlog"}
    assert store.reasons(RULE) == [
        Reason(
            RULE,
            f"the broker looks at storePathRootDir={other}, which {which}; {store.root} was judged",
            f"set storePathRootDir={store.root} in broker.conf and the paths of its log with it; for a copy of the "
            f"store, give --set storePathRootDir={store.root}",
        )
    ]


def test_a_log_that_is_not_there(store: StoreToStart, tmp_path: Path) -> None:
    """Absent or empty, while the store's own place has it; the cure changes the answer."""
    elsewhere = tmp_path / "log"
    own = store.root / "commitlog"
    store.conf["storePathCommitLog"] = str(elsewhere)
    for words in ("does not exist", "holds no segment"):
        (reason,) = store.answer().reasons
        assert reason == Reason(
            RULE,
            f"storePathCommitLog names {elsewhere}, which {words}: the broker serves nothing of it; {own} holds "
            "segments",
            f"set storePathCommitLog={own} in broker.conf, or mount -- {elsewhere}",
        )
        elsewhere.mkdir(exist_ok=True)
    store.conf["storePathCommitLog"] = str(own)
    assert store.answer().reasons == ()


def test_several_paths(store: StoreToStart, tmp_path: Path) -> None:
    """A new one may be empty; one that is absent may be a disk that is not mounted."""
    own, second = store.root / "commitlog", tmp_path / "second"
    store.conf["storePathCommitLog"] = f"{own},{second}"
    assert [(reason.values["which"], reason.unsafe) for reason in store.reasons(RULE)] == [("does not exist", True)]
    second.mkdir()
    assert [(reason.values["which"], reason.unsafe) for reason in store.reasons(RULE)] == [("holds no segment", False)]
    shutil.move(store.segment(0), second)
    assert store.reasons(RULE) == []


def test_read_only_paths_need_a_comma(store: StoreToStart, tmp_path: Path) -> None:
    own, old = store.root / "commitlog", tmp_path / "old"
    store.conf |= {"storePathCommitLog": str(own), "readOnlyCommitLogStorePaths": str(old)}
    assert store.reasons(RULE) == []
    old.mkdir()
    shutil.move(store.segment(0), old)
    reason = store.only_reason(RULE)
    assert (reason.unsafe, reason.cure) == (True, f"set storePathCommitLog={own}, in broker.conf")
    store.conf["storePathCommitLog"] += ","
    assert store.reasons(RULE) == []


@pytest.mark.parametrize(
    ("conf", "version", "what"),
    [
        ({"storePathCommitLog": ""}, "5.3", "storePathCommitLog is empty"),
        ({"storePathRootDir": " "}, "5.3", "storePathRootDir is empty"),
        ({"storePathCommitLog": "OWN,/b"}, "4.9.1", "a broker before 4.9.2 takes storePathCommitLog="),
        ({"storePathRootDir": "ROOT"}, "4.9.1", "a broker before 4.9.2 opens ~/store/commitlog"),
        ({"storePathRootDir": "ROOT"}, "4.9.2", None),
    ],
)
def test_paths_that_lead_elsewhere(store: StoreToStart, conf: dict[str, str], version: str, what: str | None) -> None:
    names = {"OWN": str(store.root / "commitlog"), "ROOT": str(store.root)}
    for name, text in conf.items():
        store.conf[name] = text.replace("OWN", names["OWN"]).replace("ROOT", names["ROOT"])
    store.version = version
    found = [reason for reason in store.reasons(RULE) if reason.unsafe]
    assert [reason.what.startswith(str(what)) for reason in found[:1]] == [True] * (what is not None)


def test_a_plain_store_is_no_groups(store: StoreToStart) -> None:
    store.conf |= {"enableDLegerCommitLog": "true", "dLegerSelfId": "n0"}
    (reason,) = store.answer().reasons
    assert (reason.rule, reason.unsafe) == (RULE, True)
    assert "after the 2 segments of a plain log" in reason.what
    (store.root / "dledger-n0" / "data").mkdir(parents=True)
    (reason,) = store.answer().reasons
    assert (reason.rule, reason.unsafe) == (RULE, True), "an empty directory is no log"


def test_a_groups_log_that_is_named_as_a_plain_one(store: StoreToStart) -> None:
    data = store.root / "dledger-n0" / "data"
    data.parent.mkdir()
    (store.root / "commitlog").rename(data)
    store.conf["storePathCommitLog"] = str(data)
    reason = store.only_reason(RULE)
    assert (reason.unsafe, "writes over the log from offset 0 on" in reason.what) == (True, True)


def test_a_blank_after_a_comma(store: StoreToStart, tmp_path: Path) -> None:
    """The broker takes it for the beginning of a relative path; the cure changes the answer."""
    other = tmp_path / "other"
    other.mkdir()
    last = max((store.root / "commitlog").iterdir())
    last.rename(other / last.name)
    own = store.root / "commitlog"
    store.conf["storePathCommitLog"] = f"{own}, {other}"
    reason = store.only_reason(RULE)
    assert reason.unsafe
    assert reason.what.startswith(f"storePathCommitLog names ' {other}', a path relative to where")
    store.conf["storePathCommitLog"] = f"{own},{other}"
    assert store.answer().safe
