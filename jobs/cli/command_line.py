"""The command line: the table of jobs, each imported only when it runs, and how a run begins and ends."""

from __future__ import annotations

import importlib
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.cli import standard_streams
from jobs.cli.arguments import Parser, add_arguments, add_options, split_command_line
from jobs.contract import metrics
from jobs.contract import options as job_options
from jobs.contract.report import Interrupted, Report, failure_report, printable
from jobs.contract.reporter import Reporter
from jobs.spark import launch, session
from storeformat import __version__
from storeformat.errors import DependencyMissing, Refused, UsageError, WriteFailed
from storeformat.storage import locations

PROGRAM = "spark-submit.sh"
EXIT_CODES = """\
exit codes:
  0 done   1 differences, damage or loss, nothing found   2 refused   64 wrong command line   65 the input is not what
  it should be   66 the input cannot be read   69 something needed is missing   70 a defect of this program   74 reading
  or writing failed underway   129, 130, 143 interrupted by SIGHUP, Ctrl-C, SIGTERM"""


@dataclass(frozen=True)
class Job:
    """One row of the table of jobs."""

    module: str
    summary: str
    options: type[job_options.JobOptions]
    runs_tasks: bool = True
    """False for jobs that read little and never start Spark."""


JOBS = {
    "demo": Job(
        "jobs.cli.demo",
        "rebuild and analyse a bundled store that a real broker wrote; the place to start",
        job_options.DemoOptions,
    ),
    "rebuild": Job(
        "jobs.rebuild.rebuild",
        "rebuild consumequeue/, index/ and checkpoint from commitlog/",
        job_options.RebuildOptions,
    ),
    "publish": Job(
        "jobs.publish.publish", "put a finished rebuild in place", job_options.PublishOptions, runs_tasks=False
    ),
    "restore": Job("jobs.publish.restore", "the way back from a publish", job_options.RestoreOptions, runs_tasks=False),
    "preflight": Job(
        "jobs.preflight.preflight",
        "say whether a broker may be started on a store, and what its start would lose",
        job_options.PreflightOptions,
        runs_tasks=False,
    ),
    "verify": Job(
        "jobs.verify.verify",
        "compare consume queues, index and checkpoint with the log",
        job_options.VerifyOptions,
    ),
    "query": Job(
        "jobs.query.query",
        "offline mqadmin: messages by key, id, offset or time",
        job_options.QueryOptions,
    ),
    # Not jobs.inspect: a module named like one of the standard library hides it as soon as jobs/ is on sys.path.
    "inspect": Job("jobs.query.inspection", "what is in this log", job_options.InspectOptions),
    "load": Job(
        "jobs.table.load",
        "append what is new in the log to the Delta table `messages`, exactly once",
        job_options.LoadOptions,
    ),
    "report": Job(
        "jobs.report.report",
        "bytes, messages and rates by topic, queue, tag, host, hour or date",
        job_options.ReportOptions,
    ),
}


def build_parser(jobs: dict[str, Job]) -> Parser:
    """The parser of everything from the job's name on."""
    parser = Parser(
        prog=PROGRAM,
        usage="%(prog)s [spark-submit options] JOB [options]",
        description="Rebuild, check and analyse the on-disk store of an Apache RocketMQ broker with Spark.",
        epilog="Options before JOB go to Spark's spark-submit (--master, --conf, ...); `JOB --help` explains a job.\n"
        "Without a job: --setup only installs; --bundle FILE writes all that it fetches into one file, and\n"
        "--setup --from FILE installs from that without a network; --pack FILE writes the Python packages that\n"
        "executors need.\n\n" + EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"rocketmq-store-spark {__version__}")
    chosen = parser.add_subparsers(prog=PROGRAM, dest="job", required=True, metavar="JOB", title="jobs")
    for name, job in jobs.items():
        one = chosen.add_parser(
            name, help=job.summary, description=job.summary[0].upper() + job.summary[1:] + ".", epilog=EXIT_CODES
        )
        add_arguments(one, job.options)
    return parser


def parse(arguments: Sequence[str], jobs: dict[str, Job]) -> tuple[str, job_options.JobOptions]:
    """Job name and options; SystemExit(0) after ``--help`` and ``--version``."""
    parser = build_parser(jobs)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UsageError(f"unknown arguments: {' '.join(unknown)}", advice=f"see ./{parser.prog} {parsed.job} --help")
    return parsed.job, job_options.from_arguments(jobs[parsed.job].options, parsed)


def main(arguments: Sequence[str], jobs: dict[str, Job] = JOBS) -> int:
    """Run the job and return the exit code; ROCKETMQ_STORE_SPARK_CHECK=1 only checks the command line and Java."""
    debug = "--debug" in arguments
    job_name, options = "", output_options(arguments)
    try:
        spark_options, job_words = split_command_line(arguments, jobs)
        job_name, options = parse(job_words or ["--help"], jobs)
        if os.environ.get("ROCKETMQ_STORE_SPARK_CHECK") == "1":
            if options.scans_log:
                launch.require_java()
            return 0
        wanted, options = options, replace(options, report_file=None, metrics=None)
        refuse_in_store(wanted)
        options = replace(wanted, report_file=None)
        refuse_unwritable(wanted.report_file)
        options = wanted
        if not debug:
            # py4j logs a trace for every call that the end of the JVM cuts off.
            logging.getLogger().addHandler(logging.NullHandler())
        if launch.values_of(spark_options, "--deploy-mode") == ["cluster"] and not launch.STARTED_BY_SPARK:
            launch.become_spark_submit(spark_options, job_words)
        with orderly_signals():
            report = run_job(job_name, jobs[job_name], options, spark_options)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (whatever it is: one line and the right exit code)
        if debug:
            for line in traceback.format_exc().splitlines():
                print(printable(line), file=sys.stderr)  # noqa: T201
        report = failure_report(job_name, error)
    return deliver(report, options)


def run_job(name: str, job: Job, options: job_options.JobOptions, spark_options: Sequence[str] = ()) -> Report:
    """Run a job. Spark starts in the background if it is certain to be needed."""
    with ExitStack() as stack:
        if job.runs_tasks and (options.scans_log or job.options is not job_options.QueryOptions):
            spark = stack.enter_context(session.shared_spark(name, spark_options, debug=options.debug))
            if options.scans_log:
                spark.begin()
        report: Report = importlib.import_module(job.module).run(options, Reporter.for_options(options))
    return report


@contextmanager
def orderly_signals() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted so that cleanup runs; signals ignored before stay ignored."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.signal(one, interrupt) for one in numbers if signal.getsignal(one) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def output_options(arguments: Sequence[str]) -> job_options.JobOptions:
    """Output options of a command line that may have errors elsewhere."""
    parser = Parser(add_help=False)
    add_options(parser, job_options.JobOptions)
    try:
        return job_options.from_arguments(job_options.JobOptions, parser.parse_known_args(arguments)[0])
    except UsageError:
        return job_options.JobOptions(json="--json" in arguments)


def refuse_in_store(options: job_options.JobOptions) -> None:
    """Refuse to write a file inside the store, or two reports into one file."""
    if options.metrics is not None and options.metrics == options.report_file:
        raise UsageError("--report and --metrics need two files")
    places = [getattr(options, "store", ""), *getattr(options, "commitlog", ())]
    for path in filter(None, (options.report_file, options.metrics, getattr(options, "export", None))):
        for place in filter(None, places):
            if locations.is_inside(os.path.realpath(path), os.path.realpath(place)):
                raise Refused("only publish and restore write into a store", path=path)


def refuse_unwritable(report_file: str | None) -> None:
    """Check that the report can be written, so that a long run does not fail at its end."""
    if report_file is None:
        return
    directory = Path(report_file).absolute().parent
    if Path(report_file).is_dir():
        raise WriteFailed("the report cannot be written: this is a directory", path=report_file)
    if not directory.is_dir():
        raise WriteFailed("the report cannot be written: there is no such directory", path=str(directory))
    if not os.access(directory, os.W_OK):
        raise WriteFailed("the report cannot be written: permission denied", path=report_file)


def deliver(report: Report, options: job_options.JobOptions) -> int:
    """Write the report and return its exit code; stdout gets it even if the file cannot be written."""
    for line in report.error_lines:
        print(printable(line), file=sys.stderr)  # noqa: T201
    code = report.exit_code
    try:
        if options.report_file is not None:
            report.write(options.report_file)
    except WriteFailed as error:
        print(printable(f"error: the report {error}"), file=sys.stderr)  # noqa: T201
        code = code or error.exit_code
    try:
        if options.metrics is not None:
            metrics.write_report(
                options.metrics, report, getattr(options, "store", "") or getattr(options, "table", "")
            )
    except (WriteFailed, DependencyMissing) as error:
        print(printable(f"error: metrics: {error}"), file=sys.stderr)  # noqa: T201
        code = code or error.exit_code
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Topics may be in any script, and the terminal's or the scheduler's locale is not ours.
            sys.stdout.reconfigure(errors="backslashreplace")
        if options.json:
            print(report.to_json(ascii_only=str(sys.stdout.encoding).lower() != "utf-8"))  # noqa: T201
        elif not report.error_lines:
            print(report.to_text())  # noqa: T201
        sys.stdout.flush()
    except BrokenPipeError:  # its reader has gone: `... | head`
        standard_streams.end_stdout()
    except OSError as error:
        standard_streams.end_stdout()
        print(f"error: the report cannot be written: {error.strerror or error} (stdout)", file=sys.stderr)  # noqa: T201
        code = code or WriteFailed.exit_code
    return code
