"""Looks into a run of the command from inside; for ``where_the_time_goes.py`` alone, which puts this on PYTHONPATH.

Every process of ours that starts with ``TRACE`` in its environment appends JSON lines to a file of its own in that
directory. Clocks are ``time.monotonic``, which all processes of a machine share (on Linux).

========  ==========================================================================================================
driver    ``{"span", "begun", "ended"}``: what it did itself, and the stages that it waited for
worker    ``{"pid", "task", "begun", "ended", "parts": {name: [seconds, calls]}}`` a task: self times, so they add up;
          also ``user`` and ``system`` seconds, page ``faults``, and the ``peak`` of its process's memory in bytes
========  ==========================================================================================================
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

TRACE = "WHERE_THE_TIME_GOES"
KERNELS = {
    "walk_sizes": "chain", "decode_heads": "heads", "crc32_spans": "body CRC", "dictionary": "topics",
    "property_spans": "properties", "hash_spans": "tags", "index_keys": "index keys", "put_entries": "link entries",
    "dispatch_plain": "check and dispatch plain records",
    "group_units": "group units",
}  # fmt: skip


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls ``then`` once a module has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name, self.then = name, then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def and_then(module: ModuleType) -> None:
            execute(module)
            self.then(module)

        spec.loader.exec_module = and_then  # type: ignore[method-assign]
        return spec


class Probe:
    """Times functions; of those that call each other, each counts its own time alone."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.parts: dict[str, list[float]] = {}
        self._open: list[float] = []
        self._used: set[tuple[int, str]] = set()

    def note(self, **facts: Any) -> None:
        """Appends a line."""
        with Path(self.directory, f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    def part(self, owner: Any, attribute: str, name: str | Callable[[Any], str], *, first: str = "") -> None:
        """Times a function of a module or class as ``name`` (of its first argument); the first call in a process as
        ``first``.
        """
        function = getattr(owner, attribute)

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            self._open.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                took = time.perf_counter() - begun
                label = name if isinstance(name, str) else name(arguments[0])
                use = (os.getpid(), attribute)
                if first and use not in self._used:
                    self._used.add(use)
                    label = first
                entry = self.parts.setdefault(label, [0.0, 0])
                entry[0] += took - self._open.pop()
                entry[1] += 1
                if self._open:
                    self._open[-1] += took

        setattr(owner, attribute, timed)

    def span(self, owner: Any, attribute: str, name: str) -> None:
        """Notes each call of a function of the driver; ``name`` may take what it works on from its arguments."""
        function = getattr(owner, attribute)

        @functools.wraps(function)
        def noted(*arguments: Any, **options: Any) -> Any:
            begun = time.monotonic()
            try:
                return function(*arguments, **options)
            finally:
                self.note(span=name.format(*arguments), begun=begun, ended=time.monotonic())

        setattr(owner, attribute, noted)

    def tasks(self, kind: Any) -> None:
        """Notes every task of a kind."""
        function = kind.__call__

        @functools.wraps(function)
        def noted(task: Any, items: Iterator[Any]) -> Iterator[Any]:
            self.parts, begun, before = {}, time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
            yield from function(task, items)
            after = resource.getrusage(resource.RUSAGE_SELF)
            self.note(
                pid=os.getpid(),
                task=kind.__name__,
                begun=begun,
                ended=time.monotonic(),
                parts=self.parts,
                user=after.ru_utime - before.ru_utime,
                system=after.ru_stime - before.ru_stime,
                faults=after.ru_minflt - before.ru_minflt,
                peak=after.ru_maxrss * 1024,
            )

        kind.__call__ = noted


def what_is_read(reader: Any) -> str:
    """Returns which file of a rebuild this is."""
    if "/drafts/" in reader.path:
        return "read back"
    return "read staged runs" if "/runs/" in reader.path else "read the log"


def into_worker(probe: Probe) -> None:
    """Times what tasks do; everything is imported when this is called."""
    import hashlib

    from storeformat.kernels import active
    from storeformat.log import chain_walk
    from storeformat.storage import files, outputs
    from udfs.files import build
    from udfs.log import scan, staged_files, staged_runs

    kernels = active()
    for function, name in KERNELS.items():
        probe.part(kernels, function, name, first="first use of the kernels")
    probe.part(files.RangeReader, "__init__", "open and close files")
    probe.part(files.RangeReader, "close", "open and close files")
    probe.part(files.RangeReader, "read_into", what_is_read)
    for attribute in ("__init__", "__exit__"):
        probe.part(files.FileWriter, attribute, "open and close files")
    for attribute in ("write", "skip_to", "finish"):
        probe.part(files.FileWriter, attribute, "write files")
    probe.part(staged_files.StagedFile, "write", "write staged runs")
    probe.part(staged_files.StagedFile, "close", "open and close files")
    probe.part(outputs, "settle", "open and close files")
    probe.part(staged_runs.RunWriter, "flush", "group and pack units")
    probe.part(staged_runs.EntryWriter, "add_rows", "pack entries")
    probe.part(chain_walk, "decode", "checks of what was decoded")
    probe.part(scan, "queue_units", "dispatch to queues")
    probe.part(scan, "index_entries", "dispatch to the index")
    probe.part(scan, "scan_split", "totals of a split")
    probe.part(build.BuildQueueFiles, "_build", "counts of queue files")
    probe.part(build.BuildIndexFiles, "_build", "counts of index files")
    probe.part(os, "fsync", "fsync")
    digest_of = hashlib.sha256

    class Digest:
        def __init__(self, data: Any = b"") -> None:
            self._digest = digest_of()
            self.update(data)

        def update(self, data: Any) -> None:
            self._digest.update(data)

        def digest(self) -> bytes:
            return self._digest.digest()

        def hexdigest(self) -> str:
            return self._digest.hexdigest()

    probe.part(Digest, "update", "digest (SHA-256)")
    hashlib.sha256 = Digest  # type: ignore[assignment]
    for kind in (scan.ScanTask, build.BuildFiles):
        probe.tasks(kind)


def into_driver(probe: Probe) -> None:
    """Notes what the driver of a rebuild does and waits for; everything is imported when this is called."""
    from jobs.rebuild import rebuild
    from jobs.spark import jvm, runner
    from storeformat.storage import files

    probe.span(rebuild, "run", "run")
    probe.span(rebuild, "open_store", "open the store")
    probe.span(jvm, "connect", "start of the JVM")
    probe.span(jvm, "end", "end of the JVM")
    probe.span(runner.SparkRunner, "__init__", "SparkContext is there")
    probe.span(runner.TimedRunner, "map", "{1}")
    probe.span(files, "remove_tree", "remove the staging directory")


def install(directory: str) -> None:
    """Waits for the imports of this process, if it is one of ours."""
    probe = Probe(directory)
    words = sys.orig_argv
    if "udfs.worker_daemon" in words:
        sys.meta_path.insert(0, AfterImport("udfs.log.scan", lambda module: into_worker(probe)))
    elif any(word.endswith("jobs/__main__.py") for word in words):
        probe.note(span="Python is there", begun=time.monotonic(), ended=time.monotonic())
        sys.meta_path.insert(0, AfterImport("jobs.rebuild.rebuild", lambda module: into_driver(probe)))


if TRACE in os.environ:
    install(os.environ[TRACE])
