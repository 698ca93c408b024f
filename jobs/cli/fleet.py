"""One job on the stores of several brokers, as many at once as keep the cores busy; what ends one stops no other.

All share one Spark, a thread a broker: while the driver judges one log, tasks of others run.

Each job opens, proves and commits for itself, so each is exactly once as if it were alone.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
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
    members = members_of(options)
    ended = threading.Event()
    # Spark ends first: threads whose tasks are gone come to an end, and remove what they drafted.
    with ThreadPoolExecutor(min(THREADS, len(members))) as pool, session.shared_spark(execution):
        running = {pool.submit(one, name, job, member, reporter, execution, ended): member for member in members}
        waiting = set(running)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=_STILL_AT_WORK, return_when=FIRST_COMPLETED)
                before = len(members) - len(waiting) - len(done)
                for number, future in enumerate(done, before + 1):
                    reporter.say(f"{number} of {len(members)}: {running[future].name}: {outcome(future.result())}")
                if not done:
                    reporter.say(f"{before} of {len(members)} brokers are done")
        except BaseException:
            ended.set()
            for future in waiting:
                future.cancel()
            raise
    return answer(name, [(member, future.result()) for future, member in running.items()], reporter)


def one(
    name: str, job: Job[Options], member: Member[Options], fleet: Reporter, execution: Execution, ended: threading.Event
) -> Report:
    """Returns the report of one broker's job, whatever fails in it; of a run that has ``ended`` nothing is said."""
    reporter = fleet.for_part(member.name)
    if ended.is_set():
        return failure_report(name, KeyboardInterrupt())
    try:
        return job(member.options, reporter, execution)
    except Exception as error:  # noqa: BLE001  (one broker's trouble, whatever it is)
        report = failure_report(name, error)
        if not ended.is_set():
            trace = traceback.format_exc().splitlines() if member.options.debug else []
            reporter.tell(*trace, *report.error_lines)
        return report


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
