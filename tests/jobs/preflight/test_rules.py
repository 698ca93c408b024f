"""The rules on small stores with something wrong: each answer is exactly that of its row."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.drilling import run_job
from support.start_cases import ROWS, RULES, Row, Said, are, bad, case_of, note
from support.start_damages import NO_OFFSET, NO_SUBSCRIPTIONS
from support.store_builder import LogBuilder
from support.store_to_start import SEGMENT, StoreToStart, finished, healthy_store

from jobs.contract.report import is_printable, printable, quoted
from jobs.preflight import preflight as judging
from jobs.preflight.preflight import judge, read_replica, start_facts
from jobs.preflight.stopped_store import SAFE_BUT, Reason, answer_of
from storeformat.errors import MissingInput
from storeformat.log.segments import Segment
from storeformat.storage import files
from storeformat.store import broker_rules
from storeformat.store.broker_rules import EFFECTS, MOVES, NOT_JUDGED, as_written

EACH = [pytest.param(row, release, id=f"{row.name}-{release}") for row in ROWS for release in row.releases.split()]
ELSEWHERE = {
    "store_in_use", "files_not_writable", "messages_not_served.group", "store_type.apart", "store_type.second_form",
    "rocksdb_not_judged",
    "messages_not_served.rocksdb", "database_not_read.broken", "database_not_read.unknown",  # test_stopped_store
    "index_deleted",  # test_golden_answers
    "messages_not_served.committed", "messages_not_served.cut",  # test_cases
    "replica_differs", "replica_longer", "replica_shorter", "replica_begins_earlier.young",
    "replica_begins_earlier.old",
    "queue_files.batches", "store_path.repaired",  # test_stopped_store, test_recover
}  # fmt: skip
"""Cases that no row shows, and where they are tested."""
SENTENCES = {
    "timermetrics torn, its .bak empty": "timermetrics is torn (Expecting value: line 1 column 6 (char 5)), and its "
    ".bak empty: the broker starts without it; counts of waiting timer messages begin at 0",
    "a lag of one": "1 messages from offset 6082 on are in no queue (Orders:0), and a start after a clean stop does "
    "not put them there (it dispatches from offset 6082 on, but the first record)",
    "a group beyond the end": "group readers has committed 17 in queue 1 of Orders, which ends at 10: it would skip "
    "the next 7 messages",
    "no last segment of two": "the log ends at offset 4096, 4 queues have units up to 6744: the broker cuts those of "
    "16 messages off, and writes new messages at their offsets",
    "a young first segment gone": "the log begins at offset 4096, after 24 messages that queues still have, though its "
    "first one is younger than the 999999 hours of fileReservedTime",
}
CURES = {
    "another store": "set storePathRootDir=ROOT in broker.conf and the paths of its log with it; for a copy of the "
    "store, give --set storePathRootDir=ROOT",
    "an empty directory of the log": "set storePathCommitLog=ROOT/commitlog in broker.conf, or mount -- TMP/log",
    "old segments, read": "raise fileReservedTime in broker.conf until the groups have read them, or give the segments "
    "a new time: touch -- ROOT/commitlog/*",
    "no timer log": "rebuild --only timers, then publish: what still waits is delivered once; or mv --backup=numbered "
    "-t ROOT/.. -- ROOT/config/timercheck: all are queued again, those delivered before a second time",
    "a group beyond the end": 'in ROOT/config/consumerOffset.json, "Orders@readers", set 1:17 to 1:10 while the broker '
    "is stopped",
}


@pytest.mark.parametrize(("row", "release"), EACH)
def test_what_is_said(row: Row, release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if row.disk is not None:
        monkeypatch.setattr(files, "space_of", lambda path: row.disk)
    answer = row.damage(row.made(tmp_path / "store", release)).answer()
    assert are(answer.reasons, *row.said), [
        (case_of(reason), reason.unsafe, dict(reason.values)) for reason in answer.reasons
    ]


@pytest.mark.parametrize("name", {**SENTENCES, **CURES})
def test_how_it_is_said(name: str, tmp_path: Path) -> None:
    (row,) = (row for row in ROWS if row.name == name)
    store = row.damage(row.made(tmp_path / "store", row.releases))
    (reason,) = store.answer().reasons
    assert reason.what == SENTENCES.get(name, reason.what)
    cure = CURES.get(name, reason.cure)
    assert reason.cure == cure.replace("ROOT", str(store.root)).replace("TMP", str(tmp_path))


def test_every_case_has_a_row() -> None:
    assert set(RULES.sections()) - {said.case for row in ROWS for said in row.said} == ELSEWHERE


def test_names_of_rows_differ() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_settings_that_rules_read_are_judged_and_no_other() -> None:
    """Else the report says that they were not looked at, or that they were."""
    ours, shared = Path(judging.__file__).parent, Path(broker_rules.__file__).parent
    read, known = (
        {name for path in paths for name in re.findall(r'"([A-Za-z]+)"', path.read_text("utf-8"))} & EFFECTS.keys()
        for paths in (ours.glob("*.py"), [*ours.glob("*.py"), *shared.rglob("*.py")])
    )
    assert len(read) > 20
    assert not read & NOT_JUDGED - MOVES.keys()
    assert {name for name, effect in EFFECTS.items() if effect} - NOT_JUDGED <= known


# Each cure that ``preflight`` shows, followed to the letter on a store that was damaged so: the reason is gone
NOT_FOLLOWED = {
    "store_in_use", "free_space", "files_not_writable",  # nothing in the store
    "config_backup", "config_from_json", "committed_before_queue", "torn_tail", "queues_made_again",  # nothing to do
    "index_deleted",  # publish --after-crash
    "log_begins_late",  # its segments are gone
    "queues_fewer_than_configured", "rocksdb_not_judged", "replica_shorter",  # notes that send to another job
    "not_judged", "queue_offsets_twice",  # nothing to do, or nothing known
    "store_type", "database_not_read",  # of RocksDB: tests/drill and tests/realstore
    "epoch_file", "replica_longer", "replica_differs", "replica_begins_earlier",  # another copy of the group
}  # fmt: skip
"""Rules without a cure that this machine can follow."""
CURED = [pytest.param(row, row.releases.split()[-1], id=row.name) for row in ROWS if row.cured]


def follow(store: StoreToStart, cure: str, spare: Path, sound: Mapping[str, str]) -> None:
    """Do what the first alternative of a cure says; ``spare`` is a sound copy, ``sound`` its settings."""
    first = re.split(r"; or |, or ", cure)[0]
    if found := re.match(r"(?:by hand.*: )?((?:mv|rm) .*?)(?:$|: |; |, if )", cure):
        subprocess.run(["sh", "-c", found[1]], check=True)
        if "rebuild makes" in cure:
            rebuilt(store, "rebuild")
    elif found := re.match(r"set both as they were", cure):
        store.conf["maxIndexNum"] = sound["maxIndexNum"]
    elif settings := re.findall(r"(?:write|set|and) (\w+)=(\S*?)(?= |,|$)", first):
        store.conf.update(settings)
    elif found := re.match(r"set (\w+) right", cure):
        store.conf = {**store.conf, found[1]: sound.get(found[1], "1s 5s 10s")}
    elif found := re.match(r"give messageDelayLevel (\d+) levels", cure):
        store.conf["messageDelayLevel"] = " ".join(["1s", "5s", "10s", "30s"][: int(found[1])])
    elif edits := re.match(r'in (\S+), (?:"(\S+)", )?set (\S+) to (\S+)', cure):
        path = Path(edits[1])
        text = path.read_text()
        begin = text.index(edits[2]) if edits[2] else 0
        assert edits[3] in text[begin:]
        path.write_text(text[:begin] + text[begin:].replace(edits[3], edits[4], 1))
    elif ("put" in first or "fetch" in first) and "repaired segments" not in first:
        for name in ("config", "commitlog"):
            shutil.copytree(spare / name, store.root / name, dirs_exist_ok=True)
    elif "touch" in cure:
        subprocess.run(["sh", "-c", cure.partition(": ")[2]], check=True)
    else:
        rebuilt(store, cure)


def rebuilt(store: StoreToStart, cure: str) -> None:
    """Follows "rebuild ... and publish"."""
    found = re.search(r"rebuild((?: --[\w-]+(?: (?!adds|raises|makes)[a-z][\w-]*)?)*)", cure)
    assert found is not None, cure
    words, repaired = found[1].split(), store.root.parent / "repaired"
    output = store.root.parent / "rebuilt"
    settings = [word for name, value in store.conf.items() for word in ("--set", f"{name}={value}")]
    if "--repair-log" in words:
        words += [str(repaired)]
    version = ["--broker-version", store.version]
    run_job("rebuild", "--store", store.root, "--output", output, *version, *settings, *words)
    if repaired.is_dir():
        shutil.copytree(repaired, store.root / "commitlog", dirs_exist_ok=True)
    else:
        done = run_job("publish", "--store", store.root, "--from", output)
        assert done.code == 0, done.report


@pytest.mark.parametrize(("row", "release"), CURED)
def test_a_cure_cures(row: Row, release: str, tmp_path: Path) -> None:
    """The cure of the first rule that a row says."""
    store, spare = row.made(tmp_path / "store", release), tmp_path / "spare"
    shutil.copytree(store.root, spare)
    sound = dict(store.conf)
    row.damage(store)
    rule = row.said[0].case.partition(".")[0]
    reasons, before = store.reasons(rule), unsafe(store)
    for reason in reasons:
        follow(store, reason.cure, spare, sound)
    assert store.reasons(rule) == []
    assert len(unsafe(store)) < len(before) or not any(reason.unsafe for reason in reasons)


NAMES = {"quotes": 'it\'s; $(touch x) `id` "q" & -rf', "hidden": "two\nlines \x1b[2J \u202egnp"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("row", "release"), CURED)
def test_a_name_in_a_cure_is_one_word(row: Row, release: str, name: str, tmp_path: Path) -> None:
    """Nothing of the name of a directory or a group is outside of a quoted word, or in a command that hides it."""
    store = row.damage(row.made(tmp_path / NAMES[name], release))
    if store.config("consumerOffset.json").exists():
        store.commit({f"Orders@{NAMES[name]}": {0: 10_000}})
    paths = [
        str(path)
        for path in (store.root, *store.root.parent.rglob("*"), store.root / "commitlog", store.root / "config")
    ]
    paths += [f"{directory}/{file}" for directory in paths for file in ("..", "delayOffset.json", "topics.json.bak")]
    words = [
        json.dumps(f"Orders@{NAMES[name]}", ensure_ascii=False),
        *(shlex.quote(f"storePathRootDir={path}") for path in paths),
    ]
    words += [form(path) for path in paths for form in (quoted, as_written)]
    for reason in store.answer().reasons:
        rest = reason.cure
        for word in sorted(words, key=len, reverse=True):
            rest = rest.replace(word, "")
        assert "by hand, for a name has" in rest or not any(part in rest for part in ("touch x", "gnp")), reason.cure
        assert is_printable(printable(reason.cure))


def unsafe(store: StoreToStart) -> list[Reason]:
    return [reason for reason in store.answer().reasons if reason.unsafe]


def test_all_rules_are_followed() -> None:
    rules = {case.partition(".")[0] for case in RULES.sections()}
    assert rules - {row.said[0].case.partition(".")[0] for row in ROWS if row.cured} == NOT_FOLLOWED


# --------------------------------- The command: first line, exit code, JSON, metrics, and that nothing heavy is loaded
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> StoreToStart:
    store = healthy_store(tmp_path / "store")
    (tmp_path / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in store.conf.items()))
    return store


HEAVY = ("pyspark", "pandas", "numba", "py4j", "jobs.spark")
SCRIPT = f"""
import sys
from storeformat.storage import files
files.space_of = lambda path: files.Space(1 << 40, 1 << 39, 1 << 39)
from jobs.cli import command_line
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


# ---------------------------------------------------------- Another copy of the log: longer, shorter, different, alike
COMMON, OWN, OTHER = 30, 9, 4


def log(messages: int, more: int = 0, *, body: bytes = b"", first: int = 0) -> LogBuilder:
    builder = LogBuilder(SEGMENT)
    for number in range(messages + more):
        text = body if number >= messages else bytes(60)
        builder.message(topic="Orders", queue_id=0, body=text.ljust(60, b"\0"), keys=f"k{number}")
    return builder


def compared(own: StoreToStart, other: StoreToStart) -> tuple[int | None, list[Reason]]:
    stopped = own.stopped()
    replica = read_replica(stopped, str(other.root))
    rules = ("replica_longer", "replica_shorter", "replica_differs")
    return replica.differs_at, [reason for reason in judge(stopped, [replica]).reasons if reason.rule in rules]


def test_alike(tmp_path: Path) -> None:
    store = healthy_store(tmp_path / "store")
    copy = StoreToStart(tmp_path / "copy", store.log)
    shutil.copytree(store.root, copy.root)
    assert compared(store, copy) == (None, [])


def test_longer_and_shorter(tmp_path: Path) -> None:
    short, long = finished(tmp_path / "short", log(COMMON)), finished(tmp_path / "long", log(COMMON, OWN))
    end, further = short.log.end_offset, long.log.end_offset
    differs, reasons = compared(short, long)
    assert differs is None
    longer = bad("replica_longer", root=str(long.root), end=further, own=end, messages=f"{OWN} messages")
    assert are(reasons, longer)
    differs, reasons = compared(long, short)
    assert differs is None
    assert are(reasons, note("replica_shorter", end=end, own=further, messages=f"{OWN} messages"))


@pytest.mark.parametrize(("age_hours", "unsafe"), [(71, True), (73, False)])
def test_a_log_that_begins_late(tmp_path: Path, age_hours: int, unsafe: bool) -> None:
    """As that of a slave that joined late: retention explains what it lacks, or does not."""
    whole = finished(tmp_path / "whole", log(COMMON))
    late = StoreToStart(tmp_path / "late", whole.log, whole.conf)
    shutil.copytree(whole.root, late.root)
    late.segment(0).unlink()
    stopped = late.stopped()
    stopped = replace(stopped, now_ms=1_700_000_000_000 + age_hours * 3_600_000)
    reasons = judge(stopped, [read_replica(stopped, str(whole.root))]).reasons
    case = "replica_begins_earlier.young" if unsafe else "replica_begins_earlier.old"
    replicas_own = [reason for reason in reasons if reason.rule.startswith("replica")]
    assert are(replicas_own, Said(case, unsafe, {"begin": SEGMENT, "theirs": 0}))


@pytest.mark.parametrize("common", [1, 7, COMMON])
def test_different_from_some_record_on(tmp_path: Path, common: int) -> None:
    own, other = log(common, OWN, body=b"own"), log(common, OTHER, body=b"other")
    differs, (reason,) = compared(finished(tmp_path / "own", own), finished(tmp_path / "other", other))
    first = own.records[common].offset
    assert differs is not None
    assert first <= differs < own.records[common + 1].offset
    said = bad("replica_differs", at=differs, theirs=f"{OTHER} messages", ours=f"{OWN} messages")
    assert are([reason], said)


@pytest.mark.parametrize("common", [1, 25, 50, 75])
def test_different_in_any_of_many_segments(tmp_path: Path, common: int) -> None:
    """The copies are alike up to there, and differ in each segment that follows."""
    own, other = log(common, 80 - common, body=b"own"), log(common, 80 - common, body=b"other")
    differs, _ = compared(finished(tmp_path / "own", own), finished(tmp_path / "other", other))
    assert differs is not None
    assert own.records[common].offset <= differs < own.records[common].end


def test_a_store_that_has_lost_its_log(tmp_path: Path) -> None:
    own, other = healthy_store(tmp_path / "own"), healthy_store(tmp_path / "other")
    for path in (own.root / "commitlog").iterdir():
        path.unlink()
    differs, (reason,) = compared(own, other)
    assert (differs, reason.rule, reason.unsafe, reason.values["end"]) == (
        None, "replica_longer", True, other.log.end_offset
    )  # fmt: skip


def test_offsets_that_a_replica_has(tmp_path: Path) -> None:
    store, other = healthy_store(tmp_path / "store"), healthy_store(tmp_path / "replica")
    NO_SUBSCRIPTIONS(store)
    NO_OFFSET(store)
    stopped = store.stopped()
    assert judge(stopped).safe
    assert are(judge(stopped, [read_replica(stopped, str(other.root))]).reasons, bad("no_offsets.none"))


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(MissingInput) as caught:
        read_replica(healthy_store(tmp_path / "store").stopped(), str(tmp_path / "nothing"))
    assert str(caught.value) == f"there is no segment in the log of this replica ({tmp_path}/nothing/commitlog)"
    assert caught.value.advice == "ROOT is its storePathRootDir"


def test_what_a_report_says_of_a_replica(tmp_path: Path) -> None:
    """Its log lies below its own root, wherever this store's broker.conf puts that of this store."""
    own, other = healthy_store(tmp_path / "own"), healthy_store(tmp_path / "other", messages=80)
    (own.root / "commitlog").rename(tmp_path / "log")
    own.conf["storePathCommitLog"] = str(tmp_path / "log")
    other.segment(0).unlink()
    assert read_replica(own.stopped(), str(other.root)).facts() == {
        "replica": str(other.root), "begin": 4096, "end": other.log.end_offset, "differs_at": None,
    }  # fmt: skip


@pytest.mark.parametrize("where", [0, 1, 4095, 4096, 4096 + 128, 6743, None])
def test_the_first_byte_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: int | None) -> None:
    """From there on all bytes differ; read in blocks of a hundred."""
    monkeypatch.setattr(judging, "_BLOCK", 100)
    data = bytes(8192)
    changed = data if where is None else data[:where] + b"x" * (8192 - where)
    logs = []
    for name, content in (("a", data), ("b", changed)):
        (tmp_path / name).mkdir()
        parts = []
        for base in (0, 4096):
            path = tmp_path / name / f"{base:020d}"
            path.write_bytes(content[base : base + 4096])
            parts.append(Segment(str(path), base, 4096))
        logs.append(tuple(parts))
    own, other = logs
    assert judging._first_difference(own, other, 6579, 6744) == where
    assert judging._first_difference(own, other, 6579, 0) is None
    assert judging._first_difference(own, (), 6579, 6744) is None
    later = None if where is None else max(where, 4096)
    assert judging._first_difference(own, other[1:], 0, 6744) == later
    assert judging._first_difference(own[1:], other, 0, 6744) == later
