"""Each cure that ``preflight`` shows, followed to the letter on a store that was damaged so: the reason is gone."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.drilling import run_job
from support.start_cases import ROWS, Row
from support.store_to_start import StoreToStart

from jobs.contract.report import is_printable, printable, quoted
from jobs.preflight.reason import ROWS as RULES
from jobs.preflight.reason import Reason
from storeformat.javaproperties import as_written

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
