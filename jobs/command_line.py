"""The one command line: which jobs there are, what each is told, and how a run ends.

A job is a module of this package with ``run(options, reporter) -> Report``; it is imported only when it runs, so that
``--help`` and a wrong command line answer at once and without Spark.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from jobs import config, launch
from jobs.arguments import (
    artefacts,
    milliseconds,
    natural,
    path,
    paths,
    positive,
    rebuilt_artefacts,
    setting,
    topic_filter,
)
from jobs.reporting import Interrupted, Report, Reporter, failure_report
from storeformat import __version__
from storeformat.errors import UsageError, WriteFailed

PROGRAM = "spark-submit.sh"
EXIT_CODES = """\
exit codes:
  0 done   1 differences, damage or loss, nothing found   2 refused   64 wrong command line   65 the input is not what
  it should be   66 the input cannot be read   69 something needed is missing   70 a defect of this program   74 reading
  or writing failed underway"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError, takes no abbreviations, and leaves defaults to the options classes."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print and exit with 2 for."""
        raise UsageError(message, advice=f"see ./{self.prog} --help")


@dataclass(frozen=True)
class Job:
    """One row of the table of jobs."""

    module: str
    summary: str
    options: type[config.JobOptions]
    add_arguments: Callable[[Parser], None]
    needs_delta: bool = False


# ------------------------------------------------------------------------------------------------- groups of arguments
class Gather(argparse.Action):
    """Appends to a tuple, which starts empty at every parse."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest, ()), values))


def add_output_arguments(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print the report as one JSON object, alone on stdout")
    group.add_argument(
        "--report", type=path, dest="report_file", metavar="FILE", help="write the same object into FILE"
    )
    group.add_argument("--quiet", action="store_true", help="no progress and no notes on stderr")
    group.add_argument("--debug", action="store_true", help="Spark's log, and Java and Python stack traces, on stderr")


def add_store_arguments(parser: Parser, *, required: bool = True) -> None:
    group = parser.add_argument_group("store")
    group.add_argument(
        "--store", type=path, required=required, metavar="ROOT", help="the broker's storePathRootDir, a path or a URI"
    )
    group.add_argument(
        "--commitlog", type=paths, metavar="PATH[,PATH]", help="where the segments are, if not in ROOT/commitlog"
    )
    group.add_argument(
        "--broker-conf", type=path, metavar="FILE", help="the broker.conf to take sizes and switches from"
    )
    group.add_argument(
        "--set",
        dest="settings",
        type=setting,
        action=Gather,
        metavar="NAME=VALUE",
        help="a setting under its broker.conf name, before that of the file; repeatable",
    )
    group.add_argument(
        "--broker-version",
        choices=config.BROKER_VERSIONS,
        help="whose rules to apply (default: what the store shows; the report says which and why)",
    )
    group.add_argument(
        "--batch-topic",
        dest="batch_topics",
        action=Gather,
        metavar="TOPIC",
        help="a BatchCQ topic (default: what config/topics.json and batchconsumequeue/ say); repeatable",
    )


def add_log_arguments(parser: Parser, *, required: bool = True) -> None:
    add_store_arguments(parser, required=required)
    group = parser.add_argument_group("reading the log")
    group.add_argument(
        "--on-damage",
        choices=("fail", "stop", "salvage"),
        help="at a damaged record: refuse the log (default), end before it as broker recovery does, or go on behind it",
    )
    group.add_argument(
        "--keep-crc-failures",
        action="store_true",
        help="with salvage: take a record all the same if nothing but the CRC of its body is wrong",
    )
    group.add_argument(
        "--until-offset", type=natural, metavar="N", help="ignore records from this commit-log offset on"
    )
    group.add_argument(
        "--split-size", type=positive, metavar="BYTES", help="bytes a task reads; never changes the result"
    )


def add_topic_argument(parser: Parser) -> None:
    parser.add_argument(
        "--topic",
        dest="topics",
        type=topic_filter,
        action=Gather,
        metavar="TOPIC[:QUEUE]",
        help="only this topic, or this queue of it; repeatable",
    )


def add_only_argument(parser: Parser) -> None:
    parser.add_argument("--only", type=artefacts, metavar="LIST", help="some of consumequeue,index,checkpoint")


def add_dry_run_argument(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, write nothing")


# ------------------------------------------------------------------------------------------------------ the jobs' own
def add_demo(parser: Parser) -> None:
    parser.add_argument(
        "--output", type=path, metavar="DIR", help="keep the rebuilt files and the table in DIR (default: remove them)"
    )


def add_rebuild(parser: Parser) -> None:
    add_log_arguments(parser)
    parser.add_argument(
        "--output", type=path, required=True, metavar="DIR", help="absent or empty; appears whole or not at all"
    )
    parser.add_argument(
        "--repair-log",
        type=path,
        metavar="DIR2",
        help="with salvage: write copies of the damaged segments in which a broker reads through the damage",
    )
    add_topic_argument(parser)
    parser.add_argument(
        "--only",
        type=rebuilt_artefacts,
        metavar="LIST",
        help="some of consumequeue,index,checkpoint; or rocksdb: the pairs of RocksDB queues, as a Parquet table",
    )
    parser.add_argument(
        "--topics-json",
        action="store_true",
        help="make config/topics.json, too: what the store still has of it, and an entry for every other topic",
    )
    add_dry_run_argument(parser)


def add_publish(parser: Parser) -> None:
    parser.add_argument("--store", type=path, required=True, metavar="ROOT", help="the store of the stopped broker")
    parser.add_argument("--from", dest="rebuilt", type=path, required=True, metavar="DIR", help="what `rebuild` wrote")
    parser.add_argument(
        "--commitlog", type=paths, metavar="PATH[,PATH]", help="where the segments are, if not in ROOT/commitlog"
    )
    parser.add_argument(
        "--after-crash", action="store_true", help="the broker did not stop cleanly: accept its abort file"
    )
    add_dry_run_argument(parser)


def add_restore(parser: Parser) -> None:
    parser.add_argument("--store", type=path, required=True, metavar="ROOT", help="the store of the stopped broker")
    parser.add_argument("--backup", metavar="NAME", help="which directory of ROOT/backup (default: the newest)")
    add_dry_run_argument(parser)


def add_verify(parser: Parser) -> None:
    add_log_arguments(parser)
    add_topic_argument(parser)
    add_only_argument(parser)


def add_query(parser: Parser) -> None:
    add_log_arguments(parser, required=False)
    parser.usage = "%(prog)s --store ROOT {key,id,offset,time} ... [options]"
    kinds = parser.add_subparsers(
        prog=f"{parser.prog} --store ROOT",
        dest="kind",
        required=True,
        metavar="{key,id,offset,time}",
        title="questions",
    )
    parser_of: dict[str, Parser] = {}
    for kind, summary in (
        ("key", "messages with a key (queryMsgByKey)"),
        ("id", "one message by offsetMsgId, or by UNIQ_KEY with --topic (queryMsgById)"),
        ("offset", "one message by its place in a queue (queryMsgByOffset)"),
        ("time", "the queue offset at a time (searchOffset)"),
    ):
        one = parser_of[kind] = kinds.add_parser(kind, help=summary, description=summary[0].upper() + summary[1:])
        one.add_argument("--topic", required=kind != "id", metavar="T")
        if kind in ("offset", "time"):
            one.add_argument("--queue", dest="queue_id", required=True, type=natural, metavar="Q")
        add_log_arguments(one, required=False)
        one.add_argument("--scan", action="store_true", help="read the log itself, use neither index nor queues")
        one.add_argument("--bodies", action="store_true", help="show bodies, too")
        add_output_arguments(one)
    parser_of["key"].add_argument("--key", required=True, metavar="K")
    parser_of["key"].add_argument(
        "--begin",
        type=milliseconds,
        metavar="MS",
        help="stored at or after this time: milliseconds since 1970, or ISO 8601 with its zone",
    )
    parser_of["key"].add_argument("--end", type=milliseconds, metavar="MS", help="stored at or before this time")
    parser_of["key"].add_argument(
        "--max", dest="max_messages", type=positive, metavar="N", help="at most N (default 64)"
    )
    parser_of["key"].add_argument(
        "--explain", action="store_true", help="look into the log, too, and say why the index does not find a message"
    )
    parser_of["id"].add_argument("message_id", metavar="MESSAGE_ID")
    parser_of["offset"].add_argument("--offset", required=True, type=natural, metavar="N")
    parser_of["time"].add_argument(
        "--time",
        required=True,
        type=milliseconds,
        metavar="MS",
        help="milliseconds since 1970, or ISO 8601 with its zone",
    )
    parser_of["time"].add_argument("--boundary", choices=("lower", "upper"), help="among equal times (default lower)")


def add_inspect(parser: Parser) -> None:
    add_log_arguments(parser)
    add_topic_argument(parser)
    parser.add_argument(
        "--from", dest="from_offset", type=natural, metavar="N", help="show records from this offset on"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="show at most N records")
    parser.add_argument("--bodies", action="store_true", help="show bodies, too")


def add_load(parser: Parser) -> None:
    add_log_arguments(parser)
    parser.add_argument("--table", type=path, required=True, metavar="TABLE", help="path or URI of the Delta table")
    parser.add_argument("--cluster", required=True, metavar="C", help="value of the table's column cluster")
    parser.add_argument("--broker", required=True, metavar="B", help="value of the table's column broker")
    add_topic_argument(parser)
    parser.add_argument("--time-zone", metavar="ZONE", help="whose midnight divides store_date (new table: UTC)")
    parser.add_argument("--with-bodies", action="store_true", help="keep message bodies in the table")
    parser.add_argument(
        "--allow-gap", action="store_true", help="go on where retention deleted records that were never loaded"
    )
    parser.add_argument(
        "--repair-from", type=natural, metavar="N", help="replace all rows of this broker from commit-log offset N on"
    )
    add_dry_run_argument(parser)


def add_report(parser: Parser) -> None:
    parser.add_argument("--table", type=path, required=True, metavar="TABLE", help="path or URI of the Delta table")
    parser.add_argument("--by", choices=("topic", "queue", "tag", "host", "hour", "date"), help="default topic")
    parser.add_argument(
        "--checks", action="store_true", help="retries, duplicates, transactions, delays, gaps and clocks, too"
    )
    parser.add_argument(
        "--html", type=path, metavar="FILE", help="write one self-contained page with plots and all checks"
    )
    parser.add_argument("--csv", type=path, metavar="FILE", help="write all groups as CSV")


JOBS = {
    "demo": Job(
        "jobs.demo",
        "rebuild and analyse a bundled store that a real broker wrote; the place to begin",
        config.DemoOptions,
        add_demo,
        needs_delta=True,
    ),
    "rebuild": Job(
        "jobs.rebuild",
        "write consumequeue/, index/ and checkpoint anew from commitlog/",
        config.RebuildOptions,
        add_rebuild,
    ),
    "publish": Job("jobs.publish", "put a finished rebuild in place", config.PublishOptions, add_publish),
    "restore": Job("jobs.restore", "the way back from a publish", config.RestoreOptions, add_restore),
    "verify": Job(
        "jobs.verify", "compare consume queues, index and checkpoint with the log", config.VerifyOptions, add_verify
    ),
    "query": Job("jobs.query", "offline mqadmin: messages by key, id, offset or time", config.QueryOptions, add_query),
    # Not jobs.inspect: a module named like one of the standard library hides it as soon as jobs/ is on sys.path.
    "inspect": Job("jobs.inspection", "what is in this log", config.InspectOptions, add_inspect),
    "load": Job(
        "jobs.load",
        "append what is new in the log to the Delta table `messages`, exactly once",
        config.LoadOptions,
        add_load,
        needs_delta=True,
    ),
    "report": Job(
        "jobs.report",
        "bytes, messages and rates by topic, queue, tag, host, hour or date",
        config.ReportOptions,
        add_report,
        needs_delta=True,
    ),
}


def build_parser(jobs: dict[str, Job]) -> Parser:
    """Return the parser of everything from the job's name on."""
    parser = Parser(
        prog=PROGRAM,
        usage="%(prog)s [spark-submit options] JOB [options]",
        description="Rebuild, check and analyse the on-disk store of an Apache RocketMQ broker with Spark.",
        epilog="Options before JOB go to Spark's spark-submit (--master, --conf, ...); `JOB --help` explains a job.\n\n"
        + EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"rocketmq-store-spark {__version__}")
    chosen = parser.add_subparsers(prog=PROGRAM, dest="job", required=True, metavar="JOB", title="jobs")
    for name, job in jobs.items():
        one = chosen.add_parser(
            name, help=job.summary, description=job.summary[0].upper() + job.summary[1:] + ".", epilog=EXIT_CODES
        )
        job.add_arguments(one)
        add_output_arguments(one)
    return parser


def parse(arguments: Sequence[str], jobs: dict[str, Job]) -> tuple[str, config.JobOptions]:
    """Return the job's name and its options; raises UsageError, or SystemExit(0) after ``--help`` and ``--version``."""
    parser = build_parser(jobs)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UsageError(f"unknown arguments: {' '.join(unknown)}", advice=f"see ./{parser.prog} {parsed.job} --help")
    return parsed.job, config.from_arguments(jobs[parsed.job].options, parsed)


def main(arguments: Sequence[str], jobs: dict[str, Job] = JOBS) -> int:
    """Run the job that the arguments name and return the exit code; the report goes to stdout, all else to stderr.

    With ROCKETMQ_STORE_SPARK_CHECK=1 nothing runs: the answer is whether the command line is right (0, or 64 after one
    line).
    """
    debug = "--debug" in arguments
    job_name, options = "", output_options(arguments)
    try:
        spark_options, job_arguments = launch.split_command_line(arguments, jobs)
        job_name, options = parse(job_arguments or ["--help"], jobs)
        if os.environ.get("ROCKETMQ_STORE_SPARK_CHECK") == "1":
            return 0
        wanted, options = options, replace(options, report_file=None)
        refuse_unwritable(wanted.report_file)
        options = wanted
        if not debug:
            # py4j logs a trace for every call that the end of the JVM cuts off.
            logging.getLogger().addHandler(logging.NullHandler())
        with orderly_signals():
            launch.prepare(spark_options, job_arguments, job_name, delta=jobs[job_name].needs_delta, debug=debug)
            report = importlib.import_module(jobs[job_name].module).run(options, Reporter.for_options(options))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (whatever it is: one line and the right exit code)
        if debug:
            traceback.print_exc()
        report = failure_report(job_name, error)
    return deliver(report, options)


def output_options(arguments: Sequence[str]) -> config.JobOptions:
    """Return where the report of a command line goes that may be wrong elsewhere."""
    parser = Parser(add_help=False)
    add_output_arguments(parser)
    try:
        return config.from_arguments(config.JobOptions, parser.parse_known_args(arguments)[0])
    except UsageError:
        return config.JobOptions(json="--json" in arguments, debug="--debug" in arguments)


def refuse_unwritable(report_file: str | None) -> None:
    """Raise WriteFailed where a report will not go: hours of work should not end with that."""
    if report_file is None:
        return
    directory = Path(report_file).absolute().parent
    if Path(report_file).is_dir():
        raise WriteFailed("the report cannot be written: this is a directory", path=report_file)
    if not directory.is_dir():
        raise WriteFailed("the report cannot be written: there is no such directory", path=str(directory))
    if not os.access(directory, os.W_OK):
        raise WriteFailed("the report cannot be written: permission denied", path=report_file)


def deliver(report: Report, options: config.JobOptions) -> int:
    """Write the report to where the options say and return its exit code; stdout has it even if FILE cannot."""
    for line in report.error_lines:
        print(line, file=sys.stderr)  # noqa: T201
    code = report.exit_code
    try:
        if options.report_file is not None:
            report.write(options.report_file)
    except OSError as error:
        reason = f"{error.strerror or error} ({options.report_file})"
        print(f"error: the report cannot be written: {reason}", file=sys.stderr)  # noqa: T201
        code = code or WriteFailed.exit_code
    try:
        if options.json:
            print(report.to_json())  # noqa: T201
        elif not report.error_lines:
            print(report.to_text())  # noqa: T201
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our stdout has gone (`... | head`); the interpreter must not trip over it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"error: the report cannot be written: {error.strerror or error} (stdout)", file=sys.stderr)  # noqa: T201
        return WriteFailed.exit_code
    return code


class orderly_signals:  # noqa: N801  (reads as what it does, like contextlib's)
    """Within it SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that half outputs and Spark's JVM go."""

    def __enter__(self) -> None:
        self.before = {number: signal.signal(number, self.interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}

    def __exit__(self, *unused: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    @staticmethod
    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted(number)
