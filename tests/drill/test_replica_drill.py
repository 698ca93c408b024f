"""The drill with two damaged copies of one log, as HA replication makes them: one that is whole is served."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from support.drilling import (
    ASK,
    Answers,
    Crashed,
    Done,
    copy_store,
    differences,
    files_of,
    log_files,
    overwrite,
    run_job,
)

pytestmark = pytest.mark.broker


@dataclass(frozen=True)
class Healed:
    """What became of the master: the commands, the log, the files before and after a start, what clients were told."""

    refused: Done
    compared: Done
    rebuilt: Done
    published: Done
    log: Mapping[str, str]
    files: tuple[dict[str, str], dict[str, str], dict[str, str]]
    started: tuple[dict[str, str], dict[str, str], dict[str, str]]
    answers: Answers


@pytest.fixture(scope="module")
def healed(crashed: Crashed) -> Healed:
    site, scratch = crashed.site, crashed.scratch
    master, slave = (copy_store(scratch / "wiped", scratch / f"copy-{name}") for name in ("master", "slave"))
    segments = sorted(crashed.log)
    starts = sorted(row["commitLogOffset"] for queue in crashed.answers["queues"].values() for row in queue["messages"])
    size = int(segments[1]) - int(segments[0])

    def records(number: int) -> list[int]:
        begin = int(segments[number])
        return [offset for offset in starts if begin <= offset < begin + size]

    for number in (-7, -5):
        overwrite(master, records(number)[3] + 20, records(number)[6] + 30)
    (master / "commitlog" / segments[-4]).unlink()
    overwrite(slave, records(-6)[2] + 10, records(-6)[4] + 90)
    short = slave / "commitlog" / segments[-3]
    short.write_bytes(short.read_bytes()[: size // 3])
    conf = ("--broker-conf", site.broker_conf(master))
    output, repaired = scratch / "healed", scratch / "healed-segments"
    refused = run_job("rebuild", "--store", master, "--output", output, *conf)
    compared = run_job("inspect", "--store", master, *conf, "--replica", slave)
    rebuilt = run_job(
        "rebuild", "--store", master, "--output", output, *conf, "--replica", slave, "--repair-log", repaired
    )
    for path in repaired.iterdir():
        shutil.copy(path, master / "commitlog" / path.name)
    log = log_files(master)
    published = run_job("publish", "--store", master, "--from", output, "--after-crash")
    files = files_of(master)
    site.start(master)
    started = files_of(master)
    (answers,) = site.clients(ASK)
    site.kill()
    return Healed(refused, compared, rebuilt, published, log, files, started, answers)


def test_alone_the_damaged_master_is_refused(healed: Healed) -> None:
    assert healed.refused.code == 65


def test_the_two_logs_agree_in_all_that_is_sound(healed: Healed) -> None:
    (replica,) = healed.compared.report["replicas"]
    assert replica["first_difference"] is None
    assert replica["damaged_ranges"]


def test_every_range_is_healed_and_nothing_is_lost(healed: Healed) -> None:
    assert healed.rebuilt.code == 0, healed.rebuilt.said
    report: dict[str, Any] = healed.rebuilt.report
    assert (report["damaged_ranges"], report["lost_messages_at_least"]) == ([], 0)
    assert len(report["healed_ranges"]) >= 3
    assert len(report["repaired_segments"]) == 3


def test_the_log_is_the_one_that_was_written_byte_for_byte(crashed: Crashed, healed: Healed) -> None:
    assert healed.log == crashed.log


def test_queues_and_index_are_those_of_the_broker(crashed: Crashed, healed: Healed) -> None:
    assert healed.published.code == 0, healed.published.said
    assert healed.files[0] == crashed.queues


def test_a_start_changes_no_file_and_everything_is_served(crashed: Crashed, healed: Healed) -> None:
    assert healed.started == healed.files
    assert differences(crashed.answers, healed.answers) == []


def test_the_copies_are_left_as_they_were(crashed: Crashed, healed: Healed) -> None:
    slave = crashed.scratch / "copy-slave"
    assert sorted(log_files(slave)) == sorted(crashed.log)
    assert log_files(slave) != crashed.log
