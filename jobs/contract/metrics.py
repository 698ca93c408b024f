"""The outcome of a job as a text file for node_exporter's textfile collector: replaced whole, never read half."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.contract.report import Report
from storeformat.errors import DependencyMissing, WriteFailed
from storeformat.storage import local_files, locations

Counted = tuple[str, str, Iterable[Mapping[str, str]], Iterable[float]]


def write_report(path: str, report: Report, store: str) -> None:
    """Writes the outcome of a run as its report has it, also of one that failed: each of its numbers is a gauge."""
    numbers = {name: value for name, value in report.items() if type(value) in (int, float) and name != "seconds"}
    facts = {name: (f"The report's {name.replace('_', ' ')}", float(value)) for name, value in numbers.items()}
    if "seconds" in report:
        facts["duration_seconds"] = ("How long it took", float(report["seconds"]))
    facts["ok"] = ("1 where the status is ok, 0 where not", float(report["status"] == "ok"))
    facts["exit_code"] = ("What the process ended with", float(report.exit_code))
    write(path, report["job"], store, facts)


def write(
    path: str,
    job: str,
    store: str,
    facts: Mapping[str, tuple[str, float]],
    counted: Counted = ("", "", (), ()),
) -> None:
    """Writes the outcome of a run of ``job`` on one store into ``path``: ``facts`` are a help text and a value by name,
    ``counted`` is one more gauge, its name, help text, labels and values.
    """
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415  (with --metrics only)
    except ImportError as error:
        raise DependencyMissing(
            "--metrics needs the package prometheus-client", advice="./spark-submit.sh --setup installs it"
        ) from error
    registry, store = CollectorRegistry(), locations.without_secrets(store)
    prefix = f"rocketmq_store_{job}"
    ended = {"time_seconds": ("When this was found out, in seconds since 1970", time.time())}
    for name, (text, value) in {**facts, **ended}.items():
        Gauge(f"{prefix}_{name}", text, ["store"], registry=registry).labels(store).set(value)
    name, text, labels, values = counted
    gauge: Any = None
    for row, value in zip(labels, values, strict=True):
        gauge = gauge or Gauge(f"{prefix}_{name}", text, ["store", *row], registry=registry)
        gauge.labels(store, *row.values()).set(value)
    try:
        local_files.replace_bytes(locations.local_path(path), generate_latest(registry))
    except OSError as error:
        raise WriteFailed(f"cannot be written: {error.strerror or error}", path=path) from error
