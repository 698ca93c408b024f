"""What errors say, and that they say it after a way through pickle, as from a task to the driver."""

from __future__ import annotations

import pickle

from storeformat.errors import DamagedLog, RecordDefect, StoreFormatError


def test_an_error_says_what_where_and_both_sides() -> None:
    error = DamagedLog("no record", path="/log", offset=7, found=0, expected=1, advice="look")
    assert str(error) == "no record: found 0, expected 1 (/log, offset 7)"
    assert str(StoreFormatError("plain")) == "plain"
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.advice, back.exit_code) == (DamagedLog, str(error), "look", error.exit_code)


def test_a_defect_is_its_code_and_says_itself_in_words() -> None:
    assert [int(defect) for defect in RecordDefect] == list(range(len(RecordDefect)))
    assert len({defect.words for defect in RecordDefect}) == len(RecordDefect)
    assert f"{RecordDefect(6)}" == "a body does not match its CRC [BODY_CRC]"
    assert pickle.loads(pickle.dumps(RecordDefect.BODY_CRC)) is RecordDefect.BODY_CRC
