"""One job on the stores of several brokers, as many at once as keep the cores busy; what ends one stops no other.

=====================  ===========================================================================================
stores on this machine  in processes that are forked from this one, each with a store at a time
else                    in threads that share one Spark: while the driver judges one log, tasks of others run
=====================  ===========================================================================================

Each job opens, proves and commits for itself, so each is exactly once as if it were alone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from jobs.cli.fleet_stores import Member, members_of
from jobs.contract.options import FleetOptions, LoadOptions
from jobs.contract.report import Report, failure_report
from jobs.contract.reporter import Reporter
from jobs.spark import runner, session
from jobs.spark.signals import orderly_signals
from storeformat.errors import StoreFormatError, WriteFailed
from storeformat.storage import files, locations
from storeformat.store.layout import COMMIT_LOG
from udfs.worker_daemon import import_tasks

Options = TypeVar("Options", bound=FleetOptions)
Job = Callable[[Options, Reporter], Report]

_FORKING = multiprocessing.get_context("fork")
THREADS = 8
"""How many jobs run at a time in Spark. Each keeps what it knows of its log in the driver."""
_STILL_AT_WORK = 30.0
"""Seconds after which a person hears that the run goes on."""
_SUMMED = ("bytes", "messages", "rows", "lost_messages")


def run(name: str, job: Job[Options], options: Options, reporter: Reporter) -> Report:
    """Returns the report of a job that runs on each store that the options name; raises as ``members_of``."""
    return _Fleet(name, job, members_of(options), reporter).run()


class _Fleet:
    """One run: its brokers, and what is known of them."""

    def __init__(self, name: str, job: Job[Any], members: list[Member[Any]], reporter: Reporter) -> None:
        self._name = name
        self._job = job
        self._members = members
        self._reporter = reporter
        self._ended = _FORKING.Event()
        self._reports: dict[int, Report] = {}

    def run(self) -> Report:
        numbers = range(len(self._members))
        if self._is_local():
            self._in_processes(numbers, min(runner.usable_cores(), len(numbers)))
            for number in numbers:  # of those that were at work when one was killed, each alone: which is it?
                if number not in self._reports:
                    self._in_processes([number], 1)
            killed = WriteFailed("the process that worked on it was killed", advice="short of memory?")
            self._reports = {number: failure_report(self._name, killed) for number in numbers} | self._reports
        else:
            self._in_threads(numbers)
        return answer(
            self._name, [(member, self._reports[at]) for at, member in enumerate(self._members)], self._reporter
        )

    def _is_local(self) -> bool:
        """Returns whether processes of this machine do without Spark."""
        places = [member.options.store for member in self._members]
        places += [path for member in self._members for path in (*member.options.commitlog, *member.options.replicas)]
        places += {member.options.table for member in self._members if isinstance(member.options, LoadOptions)}
        if not all(map(locations.is_local, places)):
            return False
        return session.does_without_spark(sum(map(_log_size, self._members)), *places)

    def _in_processes(self, numbers: Iterable[int], processes: int) -> None:
        global _fleet  # noqa: PLW0603  (forked processes find it there)
        _fleet = self
        import_tasks()
        with warnings.catch_warnings():  # of a fork beside threads: none of ours holds what a job needs
            warnings.simplefilter("ignore", DeprecationWarning)
            with ProcessPoolExecutor(processes, _FORKING, _start_worker, (os.getpid(), processes)) as pool:
                self._wait({pool.submit(_work, number): number for number in numbers})

    def _in_threads(self, numbers: Iterable[int]) -> None:
        threads = ThreadPoolExecutor(min(THREADS, len(self._members)))
        # Spark ends first: threads whose tasks are gone come to an end, and remove what they drafted.
        with threads as pool, session.shared_spark(self._name):
            self._wait({pool.submit(self.one, number): number for number in numbers})

    def one(self, number: int) -> Report:
        """Returns the report of one broker's job, whatever ends it."""
        member = self._members[number]
        reporter = self._reporter.for_part(member.name)
        if self._ended.is_set():
            return failure_report(self._name, KeyboardInterrupt())
        try:
            return self._job(member.options, reporter)
        except BaseException as error:  # noqa: BLE001  (one broker's trouble, whatever it is)
            report = failure_report(self._name, error)
            if not (self._ended.is_set() or isinstance(error, KeyboardInterrupt)):
                trace = traceback.format_exc().splitlines() if member.options.debug else []
                reporter.tell(*trace, *report.error_lines)
            return report

    def _wait(self, running: dict[Future[Report], int]) -> None:
        """Takes the reports as they come and says what came of each; those of a process that was killed are missing."""
        waiting, said, total = set(running), time.monotonic(), len(self._members)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
                for future in done:
                    if isinstance(future.exception(), BrokenProcessPool):
                        continue
                    number = running[future]
                    self._reports[number] = future.result()
                    member = self._members[number]
                    self._reporter.say(f"{len(self._reports)} of {total}: {member.name}: {outcome(future.result())}")
                if done:
                    said = time.monotonic()
                elif time.monotonic() > said + _STILL_AT_WORK:
                    said = time.monotonic()
                    self._reporter.say(f"{len(self._reports)} of {total} brokers are done")
        except BaseException:
            self._ended.set()
            for child in multiprocessing.active_children():
                child.terminate()
            for future in waiting:
                future.cancel()
            raise


_fleet: _Fleet | None = None
"""In a forked process: the run that it is part of."""


def _start_worker(driver: int, processes: int) -> None:
    runner.become_worker(driver, processes)
    # One that waits for work must end by it: where a process was killed, the pool terminates the others, and from
    # Python 3.12 on it then waits for them.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _work(number: int) -> Report:
    assert _fleet is not None
    with orderly_signals(signal.SIGTERM):  # the driver's, so that a job removes its drafts
        return _fleet.one(number)


def _log_size(member: Member[Any]) -> int:
    """Returns the bytes of a broker's log, as far as they are where one looks first."""
    places = member.options.commitlog or (locations.join(member.options.store, COMMIT_LOG),)
    try:
        return sum(sum(files.tree_sizes(place).values()) for place in places)
    except StoreFormatError:  # the job will say what it is
        return 0


# -------------------------------------------------------------------------------------------------- the report of all
def answer(job: str, reports: Sequence[tuple[Member[Any], Report]], reporter: Reporter) -> Report:
    """Returns the report of all: ``brokers`` has that of each, with its name and exit code before; exit code and status
    are those of the largest exit code.
    """
    worst = max((report for _, report in reports), key=lambda report: report.exit_code)
    entries = [_entry(member, report) for member, report in reports]
    statuses = Counter(report["status"] for _, report in reports)
    facts: dict[str, Any] = {
        name: sum(entry.get(name) or 0 for entry in entries) for name in _SUMMED if any(name in e for e in entries)
    }
    width = max(len(member.name) for member, _ in reports)
    lines = [
        f"{job}: {len(reports)} brokers, {', '.join(f'{count} {status}' for status, count in statuses.most_common())}"
    ]
    lines += [f"{member.name:<{width}}  {outcome(report)}" for member, report in reports]
    return reporter.report(
        job,
        worst["status"],
        exit_code=worst.exit_code,
        text="\n".join(lines),
        statuses=dict(statuses),
        **facts,
        brokers=entries,
    )


def _entry(member: Member[Any], report: Report) -> dict[str, Any]:
    named = {"cluster": member.cluster, "broker": member.broker, "store": member.options.store}
    rest = {name: value for name, value in report.items() if name not in ("job", "cluster", "broker", "store")}
    return {**named, "exit_code": report.exit_code, **rest}


def outcome(report: Mapping[str, Any]) -> str:
    """Returns what came of one broker's store, in a line."""
    facts = [str(report["status"])]
    if "rows" in report:
        facts.append("nothing new" if report.get("skipped") else f"{report['rows']:,} rows")
    elif "messages" in report:
        facts.append(f"{report['messages']:,} messages")
    for name, what in (("lost_messages", "lost"), ("lost_messages_at_least", "lost at least")):
        if report.get(name):
            facts.append(f"{report[name]:,} {what}")
    facts += [f"{count:,} {cause}" for cause, count in (report.get("counts") or {}).items()]
    facts += [f"{count:,} {hazard}" for hazard, count in (report.get("hazard_counts") or {}).items()]
    if report.get("damaged_ranges"):
        facts.append(f"{len(report['damaged_ranges']):,} damaged ranges")
    if "error" in report:
        facts.append(str(report["error"]))
    elif "seconds" in report:
        facts.append(f"{report['seconds']:.1f} s")
    return ", ".join(facts)
