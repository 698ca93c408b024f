"""The outcome of a job as a text file for node_exporter's textfile collector: replaced whole, never read half."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.contract.report import Report
from storeformat.errors import DependencyMissing, WriteFailed
from storeformat.storage import local_files, locations

Facts = Mapping[str, tuple[str, float]]
Counted = tuple[str, str, Iterable[Mapping[str, str]], Iterable[float]]
_NOTHING: Counted = ("", "", (), ())


@dataclass(frozen=True)
class Outcome:
    """Metrics of one store: the labels of its gauges, ``facts`` (a help text and a value by name), and one more
    gauge, its name, help text, labels and values.
    """

    labels: Mapping[str, str]
    facts: Facts
    counted: Counted = _NOTHING


def write_report(path: str, report: Report, store: str) -> None:
    """Writes the outcome of a run as its report has it, also of one that failed: each of its numbers is a gauge. Where
    there were several brokers, these have them, each with its labels.
    """
    if "statuses" not in report:
        write(path, report["job"], store, _facts(report, report.exit_code))
        return
    outcomes = []
    for row in report["brokers"]:
        labels = {"store": row["store"], "cluster": row["cluster"] or "", "broker": row["broker"] or ""}
        counts = row.get("counts") or {}
        found: Counted = ("differences", "What was found", [{"cause": cause} for cause in counts], counts.values())
        outcomes.append(Outcome(labels, _facts(row, row["exit_code"]), found))
    _write(path, report["job"], outcomes)


def _facts(report: Mapping[str, Any], exit_code: int) -> Facts:
    numbers = {
        name: value
        for name, value in report.items()
        if type(value) in (int, float) and name not in ("seconds", "exit_code")
    }
    facts = {name: (f"The report's {name.replace('_', ' ')}", float(value)) for name, value in numbers.items()}
    if "seconds" in report:
        facts["duration_seconds"] = ("How long it took", float(report["seconds"]))
    facts["ok"] = ("1 where the status is ok, 0 where not", float(report["status"] == "ok"))
    facts["exit_code"] = ("What the process ended with", float(exit_code))
    return facts


def write(path: str, job: str, store: str, facts: Facts, counted: Counted = _NOTHING) -> None:
    """Writes the outcome of a run of ``job`` on one store into ``path``."""
    _write(path, job, [Outcome({"store": store}, facts, counted)])


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
        name, text, rows, values = outcome.counted
        for row, value in zip(rows, values, strict=True):
            tell(name, text, {**outcome.labels, **row}, value)
    try:
        local_files.replace_bytes(locations.local_path(path), generate_latest(registry))
    except OSError as error:
        raise WriteFailed(f"cannot be written: {error.strerror or error}", path=path) from error
