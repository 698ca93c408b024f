"""The outcome of a job as a text file for node_exporter's textfile collector: replaced whole, never read half."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from storeformat.errors import DependencyMissing, WriteFailed
from storeformat.storage import files, local_files, locations


def write(
    path: str,
    job: str,
    store: str,
    facts: Mapping[str, tuple[str, float]],
    counted: tuple[str, str, Iterable[Mapping[str, str]], Iterable[float]],
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
    registry = CollectorRegistry()
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
        raise WriteFailed(f"cannot be written: {files.first_line(error)}", path=path) from error
