"""The report as a text file for node_exporter's textfile collector, replaced atomically."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.contract.report import Report
from storeformat.errors import DependencyMissing, WriteFailed
from storeformat.storage import local_files, locations


def write_report(path: str, report: Report, store: str) -> None:
    """Write the report as Prometheus gauges, one for each number, cause and rule. Failed runs are written too."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415  (with --metrics only)
    except ImportError as error:
        raise DependencyMissing(
            "--metrics needs the package prometheus-client", advice="./spark-submit.sh --setup installs it"
        ) from error
    of_store = {"store": locations.absolute(store) if store else ""}
    registry, gauges = CollectorRegistry(), dict[str, Any]()
    for name, text, own, value in _samples({**report, "exit_code": report.exit_code}, time.time()):
        labels = {**of_store, **own}
        if name not in gauges:
            gauges[name] = Gauge(f"rocketmq_store_{report['job']}_{name}", text, list(labels), registry=registry)
        # A path may hold bytes that are not UTF-8.
        shown = {
            key: locations.without_secrets(label).encode(errors="replace").decode() for key, label in labels.items()
        }
        gauges[name].labels(**shown).set(value)
    try:
        local_files.replace_bytes(locations.local_path(path), generate_latest(registry))
    except OSError as error:
        raise WriteFailed(f"cannot be written: {error.strerror or error}", path=path) from error


def _samples(report: Mapping[str, Any], now: float) -> Iterator[tuple[str, str, dict[str, str], float]]:
    for name, value in report.items():
        if type(value) in (int, float) and name not in ("seconds", "exit_code"):
            yield name, f"The report's {name.replace('_', ' ')}", {}, value
    if "seconds" in report:
        yield "duration_seconds", "How long it took", {}, report["seconds"]
    if (answer := str(report.get("answer", ""))).startswith(("safe", "not safe")):
        yield "safe", "1 where the broker may be started, 0 where not", {}, answer.startswith("safe")
    yield "ok", "1 where the status is ok, 0 where not", {}, report["status"] == "ok"
    yield "exit_code", "What the process ended with", {}, report["exit_code"]
    yield "time_seconds", "When this was found out, in seconds since 1970", {}, now
    reasons = Counter((reason["rule"], reason["unsafe"]) for reason in report.get("reasons", ()))
    for (rule, unsafe), count in reasons.items():
        yield "reasons", "What was found", {"rule": rule, "severity": "unsafe" if unsafe else "note"}, count
    for cause, count in (report.get("counts") or {}).items():
        yield "differences", "What was found", {"cause": cause}, count
