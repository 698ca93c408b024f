"""The outcome of a job as a text file for node_exporter's textfile collector: replaced whole, never read half."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.contract.report import Report
from storeformat.errors import DependencyMissing, WriteFailed
from storeformat.storage import local_files, locations

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Outcome:
    """Metrics of one store: the labels of its gauges, ``facts`` (a help text and a value by name), and ``counts``: how
    often each set of further labels of a gauge was found.
    """

    labels: Mapping[str, str]
    facts: Mapping[str, tuple[str, float]]
    counts: Mapping[str, Counter[Labels]]


def write_report(path: str, report: Report, store: str) -> None:
    """Writes the outcome of a run as its report has it, also of one that failed: each of its numbers is a gauge, and so
    are its differences by cause and its reasons by rule. Where there were several brokers, these have them, each with
    its labels.
    """
    if "statuses" not in report:
        labels = {"store": locations.absolute(store) if store else ""}
        _write(path, report["job"], [_outcome(report, report.exit_code, labels)])
        return
    outcomes = []
    for row in report["brokers"]:
        labels = {"store": row["store"], "cluster": row["cluster"] or "", "broker": row["broker"] or ""}
        outcomes.append(_outcome(row, row["exit_code"], labels))
    _write(path, report["job"], outcomes)


def _outcome(report: Mapping[str, Any], exit_code: int, labels: Mapping[str, str]) -> Outcome:
    numbers = {
        name: value
        for name, value in report.items()
        if type(value) in (int, float) and name not in ("seconds", "exit_code")
    }
    facts = {name: (f"The report's {name.replace('_', ' ')}", float(value)) for name, value in numbers.items()}
    if "seconds" in report:
        facts["duration_seconds"] = ("How long it took", float(report["seconds"]))
    if (answer := str(report.get("answer", ""))).startswith(("safe", "not safe")):
        facts["safe"] = ("1 where the broker may be started, 0 where not", float(answer.startswith("safe")))
    facts["ok"] = ("1 where the status is ok, 0 where not", float(report["status"] == "ok"))
    facts["exit_code"] = ("What the process ended with", float(exit_code))
    reasons: Counter[Labels] = Counter(
        (("rule", reason["rule"]), ("severity", "unsafe" if reason["unsafe"] else "note"))
        for reason in report.get("reasons", ())
    )
    differences: Counter[Labels] = Counter(
        {(("cause", cause),): count for cause, count in (report.get("counts") or {}).items()}
    )
    return Outcome(labels, facts, {"reasons": reasons, "differences": differences})


def _write(path: str, job: str, outcomes: Sequence[Outcome]) -> None:
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415  (with --metrics only)
    except ImportError as error:
        raise DependencyMissing(
            "--metrics needs the package prometheus-client", advice="./spark-submit.sh --setup installs it"
        ) from error
    registry, gauges = CollectorRegistry(), dict[str, Any]()

    def tell(name: str, text: str, labels: Mapping[str, str], value: float) -> None:
        if name not in gauges:
            gauges[name] = Gauge(f"rocketmq_store_{job}_{name}", text, list(labels), registry=registry)
        gauges[name].labels(**{key: locations.without_secrets(label) for key, label in labels.items()}).set(value)

    ended = {"time_seconds": ("When this was found out, in seconds since 1970", time.time())}
    for outcome in outcomes:
        for name, (text, value) in {**outcome.facts, **ended}.items():
            tell(name, text, outcome.labels, value)
        for name, found in outcome.counts.items():
            for row, count in found.items():
                tell(name, "What was found", {**outcome.labels, **dict(row)}, count)
    try:
        local_files.replace_bytes(locations.local_path(path), generate_latest(registry))
    except OSError as error:
        raise WriteFailed(f"cannot be written: {error.strerror or error}", path=path) from error
