"""Which options each job takes, what each of them sets, and what help says of it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import command_line
from jobs.cli.command_line import JOBS, build_parser, parse
from jobs.contract.options import JobOptions, TopicFilter
from jobs.contract.report import EXIT_CODE_OF_STATUS, EXIT_CODES
from storeformat import errors

LOG = (
    "--store --commitlog --broker-conf --set --broker-version --batch-topic --on-damage --keep-crc-failures"
    " --until-offset --split-size"
)
OUTPUT = "--json --report --metrics --quiet --verbose --debug"
QUERY = f"{LOG} {OUTPUT} --topic --bodies"

TAKES = {
    "demo": f"{OUTPUT} --output",
    "rebuild": f"{LOG} {OUTPUT} --replica --output --repair-log --topic --only --queue-store --topics-json"
    " --consumer-offsets-at --ignore-free-space --dry-run",
    "publish": f"{OUTPUT} --store --from --commitlog --broker-conf --after-crash --dry-run",
    "restore": f"{OUTPUT} --store --backup --broker-conf --dry-run",
    "preflight": f"{OUTPUT} --store --broker-conf --set --broker-version --replica",
    "verify": f"{LOG} {OUTPUT} --replica --topic --only",
    "query key": f"{QUERY} --begin --end --scan --key --max",
    "query id": f"{QUERY} --scan",
    "query offset": f"{QUERY} --queue --scan --offset",
    "query time": f"{QUERY} --queue --scan --time --boundary",
    "query list": f"{QUERY} --queue --begin --end --max --export --waiting --not-consumed --group",
    "query lag": f"{LOG} {OUTPUT} --group",
    "inspect": f"{LOG} {OUTPUT} --replica --topic --from --limit --bodies",
    "load": f"{LOG} {OUTPUT} --topic --table --cluster --broker --time-zone --with-bodies --allow-gap"
    " --repair-from --dry-run",
    "report": f"{OUTPUT} --table --by --broker --topic --begin --end --checks --html --csv",
}
"""The options of each job, and of each question."""

NEEDS = {
    "demo": {},
    "rebuild": {"--store": "S", "--output": "D"},
    "publish": {"--store": "S", "--from": "D"},
    "restore": {"--store": "S"},
    "preflight": {"--store": "S"},
    "verify": {"--store": "S"},
    "query key": {"--store": "S", "--topic": "T", "--key": "K"},
    "query id": {"--store": "S"},
    "query offset": {"--store": "S", "--topic": "T", "--queue": "1", "--offset": "5"},
    "query time": {"--store": "S", "--topic": "T", "--queue": "1", "--time": "5"},
    "query list": {"--store": "S", "--topic": "T"},
    "query lag": {"--store": "S"},
    "inspect": {"--store": "S"},
    "load": {"--store": "S", "--table": "M", "--cluster": "C", "--broker": "B"},
    "report": {"--table": "M"},
}
"""Those without which a job does not start, each with a value."""

SETS: dict[str, tuple[str | None, str, str, Any]] = {
    "--after-crash": (None, "", "after_crash", True),
    "--allow-gap": (None, "", "allow_gap", True),
    "--backup": ("NAME", "20240101T000000Z", "backup", "20240101T000000Z"),
    "--batch-topic": ("TOPIC", "A", "batch_topics", ("A",)),
    "--begin": ("MS", "1970-01-01T00:00:01Z", "begin", 1000),
    "--bodies": (None, "", "bodies", True),
    "--boundary": (None, "upper", "boundary", "upper"),
    "--broker": ("B", "b-0", "broker", "b-0"),
    "--broker-conf": ("FILE", "broker.conf", "broker_conf", "broker.conf"),
    "--broker-version": ("RELEASE", "4.9", "broker_version", "4.9"),
    "--by": (None, "host", "by", "host"),
    "--checks": (None, "", "checks", True),
    "--cluster": ("C", "east", "cluster", "east"),
    "--commitlog": ("PATH[,PATH]", "/a,/b", "commitlog", ("/a", "/b")),
    "--consumer-offsets-at": ("TIME", "7000", "consumer_offsets_at", 7000),
    "--csv": ("FILE", "f.csv", "csv", "f.csv"),
    "--debug": (None, "", "debug", True),
    "--dry-run": (None, "", "dry_run", True),
    "--end": ("MS", "7000", "end", 7000),
    "--export": ("FILE", "f.jsonl", "export", "f.jsonl"),
    "--from": ("N", "7", "from_offset", 7),
    "--group": ("G", "g", "group", "g"),
    "--html": ("FILE", "f.html", "html", "f.html"),
    "--ignore-free-space": (None, "", "ignore_free_space", True),
    "--json": (None, "", "json", True),
    "--keep-crc-failures": (None, "", "keep_crc_failures", True),
    "--key": ("K", "k", "key", "k"),
    "--limit": ("N", "7", "limit", 7),
    "--max": ("N", "7", "max_messages", 7),
    "--metrics": ("FILE", "f.prom", "metrics", "f.prom"),
    "--not-consumed": (None, "", "not_consumed", True),
    "--offset": ("N", "7", "offset", 7),
    "--on-damage": (None, "salvage", "on_damage", "salvage"),
    "--only": ("LIST", "index", "only", ("index",)),
    "--output": ("DIR", "out", "output", "out"),
    "--queue": ("Q", "7", "queue_id", 7),
    "--queue-store": (None, "rocksdb", "queue_store", "rocksdb"),
    "--quiet": (None, "", "quiet", True),
    "--repair-from": ("N", "7", "repair_from", 7),
    "--repair-log": ("DIR2", "repaired", "repair_log", "repaired"),
    "--replica": ("ROOT", "other", "replicas", ("other",)),
    "--report": ("FILE", "f.json", "report_file", "f.json"),
    "--scan": (None, "", "scan", True),
    "--set": ("NAME=VALUE", "maxIndexNum=7", "settings", (("maxIndexNum", "7"),)),
    "--split-size": ("BYTES", "4096", "split_size", 4096),
    "--store": ("ROOT", "s3://b/store", "store", "s3://b/store"),
    "--table": ("TABLE", "messages", "table", "messages"),
    "--time": ("MS", "7000", "time", 7000),
    "--time-zone": ("ZONE", "Asia/Tokyo", "time_zone", "Asia/Tokyo"),
    "--topic": ("TOPIC[:QUEUE]", "A:3", "topics", (TopicFilter("A", 3),)),
    "--topics-json": (None, "", "topics_json", True),
    "--until-offset": ("N", "0", "until_offset", 0),
    "--waiting": (None, "", "waiting", True),
    "--verbose": (None, "", "verbose", True),
    "--with-bodies": (None, "", "with_bodies", True),
}
"""Of each option: what stands for its value in the help, a value, the field that it sets, and to what."""

OF_ITS_OWN: dict[tuple[str, str], tuple[str | None, str, str, Any]] = {
    ("publish", "--from"): ("DIR", "made", "rebuilt", "made"),
    **{(job, "--topic"): ("T", "A:3", "topic", "A:3") for job in TAKES if job.startswith("query")},
}
"""What an option means to one job alone."""


def words_of(job: str, **given: str) -> list[str]:
    """The least command line of a job, with one option in place of its own."""
    needed = {**NEEDS[job], **given}
    message = ["C0A8000900002A9F0000000000000064"] if job == "query id" else []
    return [*job.split(), *(word for name, value in needed.items() for word in (name, value) if word), *message]


@pytest.fixture(autouse=True, scope="module")
def one_parser() -> Iterator[None]:
    """One for all: to build it takes ten times as long as to ask it."""
    parser = build_parser(JOBS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command_line, "build_parser", lambda jobs: parser)
        yield


def parser_of(job: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = command_line.build_parser(JOBS)
    for word in job.split():
        (choice,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        parser = choice.choices[word]
    return parser


def options_of(job: str) -> dict[str, argparse.Action]:
    actions = [action for action in parser_of(job)._actions if not isinstance(action, argparse._HelpAction)]
    return {name: action for action in actions for name in action.option_strings}


@pytest.mark.parametrize("job", TAKES)
def test_a_job_takes_these_options_and_no_others(job: str) -> None:
    found = options_of(job)
    assert sorted(found) == sorted(TAKES[job].split())
    for option, action in found.items():
        assert action.metavar == (OF_ITS_OWN.get((job, option)) or SETS[option])[0]


@cache
def least_of(job: str) -> JobOptions:
    return parse(words_of(job), JOBS)[1]


SHARED = {*LOG.split(), *OUTPUT.split()}


@pytest.mark.parametrize(
    ("job", "option"),
    [
        (job, option)
        for job in TAKES
        for option in TAKES[job].split()
        if job == "rebuild" or option not in SHARED or (job, option) in OF_ITS_OWN
    ],
)
def test_an_option_sets_one_field(job: str, option: str) -> None:
    _, value, field, expected = OF_ITS_OWN.get((job, option)) or SETS[option]
    least = least_of(job)
    _, given = parse(words_of(job, **{option: value}), JOBS)
    assert getattr(given, field) == expected
    changed = {one.name for one in fields(given) if getattr(given, one.name) != getattr(least, one.name)}
    assert changed == {field}


@pytest.mark.parametrize("job", TAKES)
def test_other_fields_have_their_defaults(job: str) -> None:
    options = least_of(job)
    given = {"store", "output", "rebuilt", "kind", "message_id", "table", "cluster", "broker", "topic", "key"}
    for field in fields(options):
        if field.name not in {*given, "queue_id", "offset", "time"}:
            assert getattr(options, field.name) == field.default, field.name


@pytest.mark.parametrize("option", ["--batch-topic", "--set", "--replica", "--topic"])
def test_an_option_that_may_be_repeated_gathers_values(option: str) -> None:
    _, value, field, expected = SETS[option]
    _, given = parse([*words_of("rebuild"), option, value, option, value], JOBS)
    assert getattr(given, field) == expected * 2


@pytest.mark.parametrize(("job", "option"), [(job, option) for job in NEEDS for option in NEEDS[job]])
def test_a_job_does_not_start_without_what_it_needs(job: str, option: str) -> None:
    words = words_of(job)
    at = words.index(option)
    with pytest.raises(errors.UsageError, match=f"arguments are required: .*{option}"):
        parse(words[:at] + words[at + 2 :], JOBS)


@pytest.mark.parametrize(
    ("job", "option", "value"),
    [
        ("rebuild", "--broker-version", "4.7"),
        ("rebuild", "--on-damage", "ignore"),
        ("rebuild", "--queue-store", "database"),
        ("rebuild", "--until-offset", "-1"),
        ("rebuild", "--split-size", "0"),
        ("rebuild", "--only", "queues"),
        ("verify", "--only", "timers"),
        ("query time", "--boundary", "middle"),
        ("query key", "--max", "0"),
        ("query list", "--max", "0"),
        ("query list", "--queue", "-1"),
        ("query offset", "--offset", "-1"),
        ("inspect", "--limit", "0"),
        ("inspect", "--from", "-1"),
        ("load", "--repair-from", "-1"),
        ("report", "--by", "key"),
    ],
)
def test_values_that_mean_nothing(job: str, option: str, value: str) -> None:
    with pytest.raises(errors.UsageError):
        parse(words_of(job, **{option: value}), JOBS)


@pytest.mark.parametrize("job", TAKES)
def test_no_option_takes_an_empty_value(job: str) -> None:
    """As a script gives it whose variable is not set."""
    for option in (name for name, action in options_of(job).items() if action.nargs != 0):
        for empty in ("", " "):
            with pytest.raises(errors.UsageError, match=option):
                parse([*words_of(job), f"{option}={empty}"], JOBS)


@pytest.mark.parametrize("job", TAKES)
def test_help_is_a_phrase_for_each_option(job: str) -> None:
    """It begins small but for a name, ends without a full stop, and is no leftover."""
    parser = parser_of(job)
    for action in parser._actions:
        assert re.match(r"[a-z]|Spark's log", action.help or "")
        assert not (action.help or "").endswith((".", "X", " "))
    assert re.match(r"[A-Z][a-z]", parser.description or "")


def test_help_names_jobs_and_questions() -> None:
    said = build_parser(JOBS).format_help()
    assert said.startswith("usage: spark-submit.sh [spark-submit options] JOB [options]\n")
    for name, job in JOBS.items():
        assert re.search(rf"^    {name}\s+{job.summary[0]}", said, re.MULTILINE)
        assert f"spark-submit.sh {name} " in parser_of(name).format_help()
    assert all(option in said for option in ("--bundle FILE ", "--setup --from FILE ", "--pack FILE "))
    said = parser_of("query").format_help()
    for question in ("key", "id", "offset", "time", "list", "lag"):
        assert re.search(rf"^    {question} +[a-z]", said, re.MULTILINE)
        assert f"spark-submit.sh query --store ROOT {question} " in parser_of(f"query {question}").format_help()


@pytest.mark.parametrize("job", JOBS)
def test_help_of_a_job_has_an_example_the_options_and_the_exit_codes(job: str) -> None:
    lines = parser_of(job).format_help().splitlines()
    example = lines[3].split()
    assert example[:2] == ["./spark-submit.sh", job]
    assert parse(example[1:], JOBS)[0] == job
    assert [line for line in lines if line in ("required:", "common:", "rare:")] == sorted(
        {"required:", "common:", "rare:"} & {*lines}, key="required: common: rare:".index
    )
    exit_codes = " ".join(parser_of(job).format_help().rpartition("\n\n")[2].split())
    assert exit_codes == "exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    assert len(lines) <= 50


def test_readme_has_the_exit_codes_of_all_errors() -> None:
    text = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
    table = text.partition("| exit code |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([\d, ]+) \| (.+) \|$", table, re.MULTILINE)
    assert dict(rows) == EXIT_CODES
    kinds = [errors.StoreFormatError, *errors.StoreFormatError.__subclasses__()]
    assert {str(code) for code in (*(kind.exit_code for kind in kinds), *EXIT_CODE_OF_STATUS.values())} <= {*EXIT_CODES}
