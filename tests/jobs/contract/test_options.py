"""Options, their values, commands, and the reporter."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import subprocess
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.patching import stand_in

from jobs.contract import options as ov
from jobs.contract import report as reporter_module
from jobs.contract.options import (
    ARTEFACTS,
    JUDGED,
    MADE,
    Artefact,
    JobOptions,
    PublishOptions,
    VerifyOptions,
    from_arguments,
    narrow_to_queues,
)
from jobs.contract.report import Reporter, command, duration_text, is_printable, set_aside
from storeformat.errors import UsageError
from storeformat.queues.topic_filter import TopicFilter


# ------------------------------------------------------------------------------------------------------- options
def test_options_that_are_required_are_named() -> None:
    with pytest.raises(UsageError) as caught:
        from_arguments(PublishOptions, Namespace(source="s", other=1))
    assert str(caught.value) == "the following arguments are required: --store, --rebuilt"
    found = from_arguments(PublishOptions, Namespace(store="s", rebuilt="r", other=1, dry_run=True))
    assert found == PublishOptions(store="s", rebuilt="r", dry_run=True)


def test_a_name_of_several_words_is_shown_as_it_is_typed() -> None:
    @dataclass(frozen=True, kw_only=True)
    class OwnOptions(JobOptions):
        two_words: str

    with pytest.raises(UsageError, match=r"^the following arguments are required: --two-words$"):
        from_arguments(OwnOptions, Namespace())
    assert from_arguments(OwnOptions, Namespace(two_words="a")).two_words == "a"


TOPICS = (TopicFilter("T"),)


@pytest.mark.parametrize(
    ("topics", "only", "narrowed"),
    [
        ((), ARTEFACTS, ARTEFACTS),
        ((), ("index",), ("index",)),
        (TOPICS, ARTEFACTS, ("consumequeue",)),
        (TOPICS, JUDGED, ("consumequeue",)),
        (TOPICS, ("consumequeue",), ("consumequeue",)),
    ],
)
def test_a_selection_of_topics_means_their_queues(
    topics: tuple[TopicFilter, ...], only: tuple[Artefact, ...], narrowed: tuple[Artefact, ...]
) -> None:
    given = VerifyOptions(store="/s", topics=topics, only=only, quiet=True)
    assert narrow_to_queues(given) == VerifyOptions(store="/s", topics=topics, only=narrowed, quiet=True)


@pytest.mark.parametrize("only", [("index",), ("consumequeue", "index"), ("checkpoint",), ("consumer-offsets",)])
def test_what_belongs_to_all_topics_is_not_made_for_some(only: tuple[Artefact, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        narrow_to_queues(VerifyOptions(store="/s", topics=TOPICS, only=only))
    said = "--topic selects consume queues only: index, checkpoint and offsets belong to all topics"
    assert str(caught.value) == said


# ------------------------------------------------------------------------------------------------- option values
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("~", "HOME"),
        ("~/store", "HOME/store"),
        ("~other/x", "~other/x"),
        ("file:/data/x", "file:///data/x"),
        ("file:///data/x", "file:///data/x"),
        ("s3://bucket/~/x", "s3://bucket/~/x"),
        ("a b/\U0001f980/", "a b/\U0001f980/"),
    ],
)
def test_paths(text: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert ov.path(text) == meant.replace("HOME", "/home/me")
    assert ov.paths(f"{text},b") == (meant.replace("HOME", "/home/me"), "b")


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (ov.natural, "0", 0),
        (ov.natural, "17", 17),
        (ov.positive, "1", 1),
        (ov.name, " n ", " n "),
        (ov.milliseconds, "1626079567052", 1626079567052),
        (ov.milliseconds, "2021-07-12T08:46:07.052Z", 1626079567052),
        (ov.milliseconds, "2021-07-12T08:46:07.052+00:00", 1626079567052),
        (ov.milliseconds, "2021-07-12 10:46:07.052+02:00", 1626079567052),
        (ov.milliseconds, "-5", -5),
        (ov.milliseconds, "1969-12-31T23:59:59.999Z", -1),
        (ov.paths, " a , ~x,, b ", ("a", "~x", "b")),
        (ov.path, "C:", "C:"),
        (ov.path, "a/b:", "a/b:"),
        (ov.setting, " maxIndexNum = 7=8 ", ("maxIndexNum", "7=8")),
        (ov.setting, "aclEnable=", ("aclEnable", "")),
        (ov.topic_filter, "%RETRY%g:3", TopicFilter("%RETRY%g", 3)),
        (ov.topic_filter, "T:3", TopicFilter("T", 3)),
        (ov.topic_filter, "%LMQ%a:b", TopicFilter("%LMQ%a:b")),
        (ov.time_zone, "Asia/Tokyo", "Asia/Tokyo"),
        (ov.artefacts, " index ,consumequeue", ("consumequeue", "index")),
        (ov.artefacts, ",".join(reversed(JUDGED)), JUDGED),
        (ov.rebuilt_artefacts, ",".join(reversed(MADE)), MADE),
    ],
)
def test_values(read: Callable[[str], Any], text: str, value: object) -> None:
    assert read(text) == value


UNKNOWN = "brokers know no setting"
NEITHER = " is neither milliseconds since 1970 nor a time with its zone, such as 2026-01-31T23:59:59.123Z"


@pytest.mark.parametrize(
    ("read", "text", "what"),
    [
        (ov.natural, "x", "'x' is not a whole number"),
        (ov.natural, "-1", "-1 is negative"),
        (ov.natural, str(1 << 63), f"{1 << 63} is too large"),
        (ov.positive, "0", "0 is too small"),
        (ov.positive, "1.5", "'1.5' is not a whole number"),
        (ov.milliseconds, "2021-07-12T08:46:07", "'2021-07-12T08:46:07'" + NEITHER),
        (ov.milliseconds, "soon", "'soon'" + NEITHER),
        (ov.path, " ", "the path is empty"),
        (ov.path, "s3://", "s3:// is incomplete: it has a scheme and no path"),
        (ov.path, "hdfs:/x", "hdfs:/x has one slash after its scheme; a URI has two, a local path ./ first"),
        (ov.paths, " , ", "the path is empty"),
        (ov.name, " ", "the name is empty"),
        (ov.setting, "maxIndexNum", "'maxIndexNum' is not name=value"),
        (ov.setting, "=5", "'=5' is not name=value"),
        (ov.setting, "maxIndexNun=5", f"{UNKNOWN} 'maxIndexNun'; is it maxIndexNum?"),
        (
            ov.setting,
            "enableLm=5",
            f"{UNKNOWN} 'enableLm'; is it enableLmq or enableLmqStats or enableLmqQuota?",
        ),
        (ov.setting, "qqqqqqqqqq=5", f"{UNKNOWN} 'qqqqqqqqqq'"),
        (ov.topic_filter, " ", "a topic needs a name"),
        (ov.topic_filter, "T:x", "'T:x' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.topic_filter, "a/b", "'a/b' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.time_zone, "Mars/Phobos", "Mars/Phobos: no such time zone"),
        (ov.time_zone, "../etc", "../etc: no such time zone"),
        (ov.topic_filter, "..:1", "'..:1' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.topic_filter, "a\0", r"'a\x00' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.artefacts, "index,b,a", "'a' is not one of consumequeue, index, checkpoint, consumer-offsets"),
        (ov.artefacts, "", "'' is not one of consumequeue, index, checkpoint, consumer-offsets"),
    ],
)
def test_what_is_wrong_is_said(read: Callable[[str], Any], text: str, what: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        read(text)
    assert str(caught.value) == what


# ------------------------------------------------------------------------------------------------------ commands


@given(st.lists(st.text(), min_size=1, max_size=4))
@example(["$(touch /tmp/x)", "`id`", "it's", '"', "a b", "-rf", "; rm -r /", "&", "*", "~root", "%R%g", "\\", "", "#"])
@example(["\x1b[2J"])
@example(["two\nlines"])
@example(["\u202egnp"])
@example(["\u200b"])
@example(["\x00"])
def test_a_name_is_a_word_of_a_command_and_what_a_terminal_hides_in_none(words: list[str]) -> None:
    said = command("echo", *words)
    by_hand = "by hand, for a name has characters that a terminal hides: echo "
    assert shlex.split(said) == ["echo", *words] if all(map(is_printable, words)) else said.startswith(by_hand)
    assert is_printable(said)


def test_files_of_one_name_are_all_kept(tmp_path: Path) -> None:
    """Each queue has a file 00000000000000000000."""
    paths = []
    for queue in ("0", "1 $(exit 1)"):
        paths.append(tmp_path / "store" / queue / "00")
        paths[-1].parent.mkdir(parents=True)
        paths[-1].write_text(queue)
        subprocess.run(["sh", "-ec", set_aside(str(tmp_path), [str(paths[-1])])], check=True)
    assert sorted(path.read_text() for path in tmp_path.glob("00*")) == ["0", "1 $(exit 1)"]
    assert not any(path.exists() for path in paths)


# ------------------------------------------------------------------------------------------------------ reporter
class TestProgress:
    @pytest.mark.parametrize(
        ("done", "total", "share"), [(0, 1000, "0%"), (0, 0, "100%"), (5, 0, "100%"), (9, 9, "100%")]
    )
    def test_no_rest_is_told_at_the_start_and_at_the_end(self, done: int, total: int, share: str) -> None:
        with Reporter(stream=io.StringIO()).progress("scan", total) as progress:
            for now in (progress.begun, progress.begun + 1):
                text = progress.text(done, now)
                assert text.startswith(f"scan: {share}, ")
                assert "left" not in text

    def test_lines_of_a_job_have_a_time_unless_a_person_watches(self) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said, interval=0, dated=True)
        with reporter.progress("scan", 10) as progress:
            progress.update(5)
        reporter.warn("w")
        assert re.sub(r"\d", "0", said.getvalue()).splitlines()[1] == "0000-00-00 00:00:00 warning: w"
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d scan: 50%", said.getvalue())
        said.isatty = lambda: True  # type: ignore[method-assign]
        watched = Reporter(stream=said, dated=True)
        watched.warn("seen")
        assert said.getvalue().endswith("\nwarning: seen\n")
        assert Reporter.for_options(JobOptions()).dated

    def test_on_a_terminal_one_line_that_is_wiped_at_the_end(self) -> None:
        said = io.StringIO()
        said.isatty = lambda: True  # type: ignore[method-assign]
        reporter = Reporter(stream=said)
        with reporter.progress("scan", 10) as progress:
            progress.update(5, now=progress.begun + 1)
            reporter.note("by the way")
        line = "scan: 50%, 5 B of 10 B, 5 B/s, about 1 s left"
        assert said.getvalue() == f"{line}\r{' ' * len(line)}\rby the way\n"

    def test_quiet_silences_notes_and_progress_but_no_warning(self) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said, quiet=True, interval=0)
        with reporter.progress("scan", 10) as progress:
            progress.update(5, now=progress.begun + 100)
        reporter.note("n")
        reporter.warn("w")
        assert said.getvalue() == "warning: w\n"

    def test_the_report_has_what_was_noted_and_how_long_it_took(self) -> None:
        said = io.StringIO()
        reporter = Reporter(stream=said)
        reporter.say("doing it")
        reporter.note("n", "m")
        reporter.warn("w")
        reporter.begun -= 100
        report = reporter.report("load", damaged=True, rows=3, notes=["last"])
        assert list(report) == ["job", "status", "rows", "seconds", "notes"]
        assert 100 <= report["seconds"] < 200
        assert (report.exit_code, report["notes"]) == (1, ["n", "m", "w", "last"])
        assert said.getvalue() == "doing it\nn\nm\nwarning: w\n"

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (3, "3 s"),
            (89, "89 s"),
            (90, "2 min"),
            (120, "2 min"),
            (5399, "90 min"),
            (5400, "1.5 h"),
            (9000, "2.5 h"),
            (3_600_000, "1000.0 h"),
        ],
    )
    def test_times(self, seconds: float, text: str) -> None:
        assert duration_text(seconds) == text


def test_what_must_not_be_missed_is_said_of_a_quiet_run_too() -> None:
    said = io.StringIO()
    reporter = Reporter(stream=said, quiet=True)
    reporter.tell("  a ", "b")
    reporter.say("c")
    assert (said.getvalue(), reporter.notes) == ("a\nb\n", [])


def test_what_a_report_is_given() -> None:
    report = Reporter(quiet=True).report("query", differs=True, text=["t"], rows=2)
    assert (report["job"], report["status"], report.exit_code, report.text) == ("query", "differences", 1, ["t"])
    assert (report["rows"], report["notes"]) == (2, [])
    assert Reporter(quiet=True).report("query")["status"] == "ok"


def test_the_first_progress_on_a_terminal_comes_after_half_a_second() -> None:
    said = io.StringIO()
    said.isatty = lambda: True  # type: ignore[method-assign]
    with Reporter(stream=said).progress("scan", 10) as progress:
        for tick, lines in ((0.25, 0), (0.5, 1), (0.625, 1), (0.75, 2)):
            progress.update(5, now=progress.begun + tick)
            assert said.getvalue().count("scan") == lines


def test_progress_goes_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    now = [1000.0]
    stand_in(monkeypatch, reporter_module, "time", monotonic=lambda: now[0])
    with Reporter(stream=said, interval=30).progress("scan", 1000) as progress:
        for now[0] in (1000.0, 1029.9, 1030.0, 1059.9, 1060.0):
            progress.update(500)
    amounts = ("500 B of 1.0 kB, 17 B/s, about 30 s left", "500 B of 1.0 kB, 8 B/s, about 60 s left")
    assert said.getvalue() == "".join(f"scan: 50%, {amount}\n" for amount in amounts)
    assert progress.text(2, progress.begun) == "scan: 0%, 2 B of 1.0 kB, 2.0 GB/s, about 0 s left"
