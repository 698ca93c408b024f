"""The answer as a text file for node_exporter's textfile collector: replaced whole, never read half."""

from __future__ import annotations

import time

from jobs.safety.reason import Answer
from storeformat.errors import DependencyMissing, WriteFailed
from storeformat.storage import files, local_files, locations


def write(path: str, store: str, answer: Answer, seconds: float) -> None:
    """Writes the metrics of one answer into ``path``."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415  (with --metrics only)
    except ImportError as error:
        raise DependencyMissing(
            "--metrics needs the package prometheus-client", advice="./spark-submit.sh --setup installs it"
        ) from error
    registry = CollectorRegistry()
    facts = (
        ("safe", "1 where the broker may be started, 0 where not", int(answer.safe)),
        ("time_seconds", "When this was found out, in seconds since 1970", time.time()),
        ("duration_seconds", "How long it took", seconds),
    )
    for name, text, value in facts:
        Gauge(f"rocketmq_store_preflight_{name}", text, ["store"], registry=registry).labels(store).set(value)
    reasons = Gauge(
        "rocketmq_store_preflight_reasons", "What was found", ["store", "rule", "severity"], registry=registry
    )
    for reason in answer.reasons:
        reasons.labels(store, reason.rule, "unsafe" if reason.unsafe else "note").inc()
    try:
        local_files.replace_bytes(locations.local_path(path), generate_latest(registry))
    except OSError as error:
        raise WriteFailed(f"cannot be written: {files.first_line(error)}", path=path) from error
