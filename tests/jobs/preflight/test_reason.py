"""How reasons are named and put in order."""

from __future__ import annotations

from jobs.preflight.reason import SAFE_BUT, Reason, answer_of, first_of


def test_of_many_names_five_are_shown() -> None:
    assert first_of([]) == ""
    assert first_of(list("abcde")) == "a, b, c, d, e"
    assert first_of(list("abcdefg")) == "a, b, c, d, e and 2 more"


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
    facts = answer.facts()
    assert facts["reasons"][0] == {
        "rule": "large", "what": "two lines", "cure": "a cure", "unsafe": True,
    }  # fmt: skip
    assert (facts["answer"], answer_of([]).first_line) == ("not safe to start", "safe to start")
    assert answer_of(answer.reasons[1:]).first_line == SAFE_BUT
