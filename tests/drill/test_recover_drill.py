"""Outages that ``recover --yes`` ends alone: a broker that is started afterwards serves everything that the log has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.drilling import ASK, Crashed, Done, copy_store, differences, log_files, missing, overwrite, run_job

pytestmark = pytest.mark.broker


def without_queues(store: Path) -> None:
    """As ``wiped`` is: no queues, no index, no checkpoint."""


def without_index(store: Path) -> None:
    shutil.rmtree(store / "index")


def torn_offsets(store: Path) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:-20])
    path.with_name(path.name + ".bak").unlink(missing_ok=True)


def recover(crashed: Crashed, store: Path) -> Done:
    return run_job("recover", "--store", store, "--broker-conf", crashed.site.broker_conf(store), "--yes")


@pytest.mark.parametrize("damage", [without_queues, without_index, torn_offsets])
def test_all_is_served_again(crashed: Crashed, damage: Callable[[Path], None], tmp_path: Path) -> None:
    store = copy_store(crashed.scratch / "wiped", tmp_path / "store")
    if damage is not without_queues:
        assert recover(crashed, store).code == 0
        damage(store)
    done = recover(crashed, store)
    assert done.code == 0, done
    crashed.site.start(store)
    (answers,) = crashed.site.clients(ASK)
    crashed.site.kill()
    assert differences(crashed.answers, answers) == []
    assert missing(answers, crashed.sent) == []


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_left_of_a_damaged_log_is_served(crashed: Crashed, cut: bool, tmp_path: Path) -> None:
    """One record is damaged, or the last segment ends within one."""
    store = copy_store(crashed.scratch / "wiped", tmp_path / "store")
    base = int(list(log_files(store))[-1 if cut else -5])
    starts = sorted(row["commitLogOffset"] for queue in crashed.answers["queues"].values() for row in queue["messages"])
    own = [offset for offset in starts if base <= offset]
    if cut:
        with (store / "commitlog" / f"{base:020d}").open("r+b") as file:
            file.truncate(own[len(own) // 2] - base + 50)
    else:
        overwrite(store, own[3] + 20, own[3] + 60)
    done = recover(crashed, store)
    assert str(done.report.get("answer")).startswith("safe"), done
    (log,) = store.glob("commitlog-repaired-*")
    lost = set(own[len(own) // 2 :]) if cut else {own[3]}
    crashed.site.start(store, storePathCommitLog=log)
    (answers,) = crashed.site.clients(ASK)
    crashed.site.kill()
    before = {row["commitLogOffset"] for queue in crashed.answers["queues"].values() for row in queue["messages"]}
    served = {row["commitLogOffset"] for queue in answers["queues"].values() for row in queue["messages"]}
    assert before - served == lost
