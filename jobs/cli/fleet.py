"""One job on the stores of several brokers, as many at once as keep the cores busy; what ends one stops no other.

All share one Spark, a thread a broker: while the driver judges one log, tasks of others run.

Each job opens, proves and commits for itself, so each is exactly once as if it were alone.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from jobs.cli.fleet_stores import Member, members_of
from jobs.contract.options import FleetOptions
from jobs.contract.report import Report, failure_report
from jobs.contract.reporter import Reporter
from jobs.spark import session
from jobs.spark.execution import BROUGHT, Execution

Options = TypeVar("Options", bound=FleetOptions)
Job = Callable[[Options, Reporter, Execution], Report]

THREADS = 8
"""How many jobs run at a time in Spark. Each keeps what it knows of its log in the driver."""
_STILL_AT_WORK = 30.0
"""Seconds after which a person hears that the run goes on."""
_SUMMED = ("bytes", "messages", "rows", "lost_messages")


def run(name: str, job: Job[Options], options: Options, reporter: Reporter, execution: Execution = BROUGHT) -> Report:
    """Returns the report of a job that runs on each store that the options name; raises as ``members_of``."""
    return _Fleet(name, job, members_of(options), reporter, execution).run()


class _Fleet:
    """One run: its brokers, and what is known of them."""

    def __init__(
        self, name: str, job: Job[Any], members: list[Member[Any]], reporter: Reporter, execution: Execution
    ) -> None:
        self._name = name
        self._job = job
        self._members = members
        self._reporter = reporter
        self._execution = execution
        self._ended = threading.Event()
        self._reports: dict[int, Report] = {}

    def run(self) -> Report:
        threads = ThreadPoolExecutor(min(THREADS, len(self._members)))
        # Spark ends first: threads whose tasks are gone come to an end, and remove what they drafted.
        with threads as pool, session.shared_spark(self._execution):
            self._wait({pool.submit(self.one, number): number for number in range(len(self._members))})
        return answer(
            self._name, [(member, self._reports[at]) for at, member in enumerate(self._members)], self._reporter
        )

    def one(self, number: int) -> Report:
        """Returns the report of one broker's job, whatever fails in it."""
        member = self._members[number]
        reporter = self._reporter.for_part(member.name)
        if self._ended.is_set():
            return failure_report(self._name, KeyboardInterrupt())
        try:
            return self._job(member.options, reporter, self._execution)
        except Exception as error:  # noqa: BLE001  (one broker's trouble, whatever it is)
            report = failure_report(self._name, error)
            if not self._ended.is_set():
                trace = traceback.format_exc().splitlines() if member.options.debug else []
                reporter.tell(*trace, *report.error_lines)
            return report

    def _take(self, number: int, report: Report) -> None:
        """Keeps a report and says what became of its broker."""
        self._reports[number] = report
        done, member = len(self._reports), self._members[number]
        self._reporter.say(f"{done} of {len(self._members)}: {member.name}: {outcome(report)}")

    def _wait(self, running: dict[Future[Report], int]) -> None:
        """Takes the reports as they come."""
        waiting, said = set(running), time.monotonic()
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
                for future in done:
                    self._take(running[future], future.result())
                if done:
                    said = time.monotonic()
                elif time.monotonic() > said + _STILL_AT_WORK:
                    said = time.monotonic()
                    self._reporter.say(f"{len(self._reports)} of {len(self._members)} brokers are done")
        except BaseException:
            self._ended.set()
            for future in waiting:
                future.cancel()
            raise


# -------------------------------------------------------------------------------------------------- the report of all
def answer(job: str, reports: Sequence[tuple[Member[Any], Report]], reporter: Reporter) -> Report:
    """Returns the report of all: ``brokers`` has that of each, with its name and exit code before; exit code and status
    are those of the broker with the largest exit code.
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
    return Report(
        job,
        worst["status"],
        exit_code=worst.exit_code,
        text=lines,
        statuses=dict(statuses),
        **facts,
        brokers=entries,
        seconds=reporter.seconds,
        notes=reporter.notes,
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
