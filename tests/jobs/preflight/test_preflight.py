"""The command: first line, exit code, JSON, metrics, and that nothing heavy is loaded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.drilling import run_job
from support.store_to_start import StoreToStart, healthy_store

from jobs.preflight.preflight import start_facts
from jobs.preflight.reason import SAFE_BUT, Reason, answer_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> StoreToStart:
    store = healthy_store(tmp_path / "store")
    (tmp_path / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in store.conf.items()))
    return store


HEAVY = ("pyspark", "pandas", "numba", "py4j")
SCRIPT = f"""
import sys
from storeformat.storage import local_status
local_status.space_of = lambda path: local_status.Space(1 << 40, 1 << 39, 1 << 39)
from jobs.cli import command_line
from storeformat.storage import local_status
local_status.space_of = lambda path: local_status.Space(1 << 40, 1 << 39, 1 << 39)
code = command_line.main(sys.argv[1:])
loaded = [name for name in {HEAVY!r} if name in sys.modules]
sys.exit(f"loaded: {{loaded}}" if loaded else code)
"""


def preflight(store: StoreToStart, *options: str, conf: bool = True) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which fails where something heavy was loaded; its disk is half empty."""
    line = ["preflight", "--store", str(store.root), *options]
    line += ["--broker-conf", str(store.root.parent / "broker.conf")] if conf else []
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *line], check=False, capture_output=True, text=True, cwd=ROOT, timeout=120
    )


def test_safe(store: StoreToStart) -> None:
    done = preflight(store)
    answer, seen, unseen, following = done.stdout.splitlines()
    assert (done.returncode, answer, following, done.stderr) == (0, "safe to start", "next: start the broker", "")
    assert seen.startswith("looked at: the log from offset 0 to 6744; 4 queues; topics, groups and committed offsets; ")
    home = "~/store, which a broker takes without storePathRootDir"
    assert unseen == f"not looked at: entries of the index; what consumers of POP hold; {home}"
    with (store.root.parent / "broker.conf").open("a") as conf:
        conf.write(
            "brokerRole=SLAVE\nbrokerId=1\nslaveReadEnable=true\nflushDiskType=SYNC_FLUSH\nfileReservedTime=48\n"
        )
    assert preflight(store).stdout.splitlines()[-2] == f"{unseen}; settings: slaveReadEnable"


def test_what_a_report_and_metrics_say(store: StoreToStart, tmp_path: Path) -> None:
    told = tmp_path / "m.prom"
    line = ["preflight", "--store", store.root, "--broker-conf", tmp_path / "broker.conf", "--metrics", told]
    done = run_job(*line, "--replica", store.root, "--broker-version", "5.5")
    unsaid = ("seconds", "looked_at", "not_looked_at")
    assert (len(done.report["looked_at"]), len(done.report["not_looked_at"])) == (7, 3)
    assert (done.code, {name: fact for name, fact in done.report.items() if name not in unsaid}) == (
        0,
        {
            "job": "preflight", "status": "ok", "answer": "safe to start", "reasons": [],
            "next": "start the broker", "store": str(store.root),
            "log_begin": 0, "log_end": 6744, "log_read_from": 0, "queues": 4, "after_crash": False,
            "broker_version": "5.5", "broker_version_reason": "as given by --broker-version", "notes": [],
            "replicas": [{"replica": str(store.root), "begin": 0, "end": 6744, "differs_at": None}],
        },
    )  # fmt: skip
    assert "rocketmq_store_preflight_safe 1.0" in metrics_in(told)
    store.commit({"Orders@readers": {0: 99}})
    done = run_job(*line[:3], "--set", f"mappedFileSizeCommitLog={store.conf['mappedFileSizeCommitLog']}", *line[5:])
    assert (done.code, done.report["status"], done.report["answer"]) == (1, "unsafe", "not safe to start")
    assert [note.partition(" the")[0] for note in done.report["notes"]] == ["without --broker-conf"]
    assert "rocketmq_store_preflight_safe 0.0" in metrics_in(told)


def metrics_in(path: Path) -> list[str]:
    """The lines without labels of a file of metrics."""
    return [re.sub(r"{.*}", "", line) for line in path.read_text().splitlines()]


def test_a_note(store: StoreToStart) -> None:
    store.config("consumerFilter.json").write_text("{")
    done = preflight(store)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].startswith("safe to start, but ")
    assert done.stdout.splitlines()[1].startswith("note: config_lost: consumerFilter.json is torn")


def test_not_safe(store: StoreToStart, tmp_path: Path) -> None:
    store.commit({"Orders@x\x1b]0;y": {0: 99}})
    metrics = tmp_path / "preflight.prom"
    done = preflight(store, "--json", "--metrics", str(metrics))
    report = json.loads(done.stdout)
    assert (done.returncode, report["answer"], report["job"]) == (1, "not safe to start", "preflight")
    (reason,) = report["reasons"]
    assert (reason["rule"], reason["unsafe"]) == ("committed_beyond_queue", True)
    assert {"what", "cure"} <= set(reason)
    lines = metrics.read_text().splitlines()
    assert f'rocketmq_store_preflight_safe{{store="{store.root}"}} 0.0' in lines
    name = "rocketmq_store_preflight_reasons"
    assert f'{name}{{rule="committed_beyond_queue",severity="unsafe",store="{store.root}"}} 1.0' in lines
    shown = preflight(store).stdout
    assert shown.splitlines()[0] == "not safe to start"
    assert "\x1b" not in shown


def test_a_metrics_file_is_replaced_whole(store: StoreToStart, tmp_path: Path) -> None:
    metrics = tmp_path / "preflight.prom"
    metrics.write_text("old")
    with metrics.open() as old:
        assert preflight(store, "--metrics", str(metrics)).returncode == 0
        assert old.read() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(("what", "code"), [("store", 66), ("commitlog", 66), ("conf", 66), ("huge", 65)])
def test_what_cannot_be_judged(store: StoreToStart, what: str, code: int) -> None:
    conf = store.root.parent / "broker.conf"
    if what == "store":
        store.root.rename(store.root.parent / "elsewhere")
    elif what == "commitlog":
        (store.root / "commitlog").rename(store.root / "log")
    elif what == "conf":
        conf.unlink()
    else:
        with store.config("topics.json").open("wb") as file:
            file.truncate(10 << 30)
    done = preflight(store)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_without_a_broker_conf_sizes_are_as_shown(store: StoreToStart) -> None:
    done = preflight(store, conf=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "safe to start")
    assert "broker.conf, which was not given" in done.stdout
    assert "--broker-conf" in done.stderr


# ----------------------------------------------------------------------------------------------- reasons and answers
def test_a_job_says_whether_the_store_may_be_started(store: StoreToStart) -> None:
    settings = list(store.conf.items())
    assert start_facts(str(store.root), settings=settings) == {"answer": "safe to start", "reasons": []}
    facts = start_facts(str(store.root), settings=[*settings, ("storeType", "defaultRocksDB")])
    assert facts["answer"] == "not safe to start"
    conf = store.root / "broker.conf"
    conf.write_text("storeType = defaultRocksDB\n" + "".join(f"{name} = {value}\n" for name, value in settings))
    assert start_facts(str(store.root), str(conf)) == facts
    assert start_facts(str(store.root), settings=settings, version="5.5")["answer"] == "safe to start"


def test_unsafe_reasons_come_first_and_lines_are_one_line_each() -> None:
    answer = answer_of([
        Reason("small", "a note", unsafe=False), Reason("large", "two lines", "a cure"),
        Reason("other", "a note, too", cure="nothing", unsafe=False),
    ])  # fmt: skip
    assert [reason.rule for reason in answer.reasons] == ["large", "small", "other"]
    assert answer.lines() == [
        "not safe to start", "large: two lines", "    a cure", "note: small: a note", "note: other: a note, too",
        "    nothing",
    ]  # fmt: skip
    assert not answer.safe
    facts = {"rule": "large", "what": "two lines", "cure": "a cure", "unsafe": True, "recover": ""}
    assert answer.facts()["reasons"][0] == facts
    assert answer_of(answer.reasons[1:]).first_line == SAFE_BUT
