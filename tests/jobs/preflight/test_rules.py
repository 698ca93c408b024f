"""The rules on small stores with something wrong: each answer is exactly that of its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.start_cases import ROWS, RULES, Row, are, case_of

from jobs.preflight import preflight
from storeformat.storage import local_status
from storeformat.store.setting_names import EFFECTS, MOVES, NOT_JUDGED

EACH = [pytest.param(row, release, id=f"{row.name}-{release}") for row in ROWS for release in row.releases.split()]
ELSEWHERE = {
    "store_in_use", "files_not_writable", "messages_not_served.group", "store_type.apart", "store_type.second_form",
    "rocksdb_not_judged",
    "messages_not_served.rocksdb", "database_not_read.broken", "database_not_read.unknown",  # test_stopped_store
    "index_deleted",  # test_golden_answers
    "messages_not_served.committed", "messages_not_served.cut",  # test_cases
    "replica_differs", "replica_longer", "replica_shorter", "replica_begins_earlier.young",
    "replica_begins_earlier.old",  # test_replicas
    "queue_files.batches",  # test_stopped_store
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
        monkeypatch.setattr(local_status, "space_of", lambda path: row.disk)
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


def test_settings_that_rules_read_are_judged() -> None:
    """Else the report says that they were not looked at."""
    sources = [path.read_text(encoding="utf-8") for path in Path(preflight.__file__).parent.glob("*.py")]
    read = {name for text in sources for name in re.findall(r'"([A-Za-z]+)"', text)} & EFFECTS.keys()
    assert len(read) > 20
    assert not read & NOT_JUDGED - MOVES.keys()
