"""The report of a run over several brokers: an entry for each, a line for each, and the exit code of the worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.cli.fleet_stores import Member
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter

_SUMMED = ("bytes", "messages", "rows", "lost_messages")


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
