"""The manifest of a rebuild, written last: files and their content, range of the log, and settings."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.contract.options import ARTEFACTS, CONSUMER_OFFSETS, DELAY_OFFSETS, MADE, TIMERS, RebuildOptions
from jobs.contract.report import Reporter
from jobs.log.log_scan import LogReading
from jobs.log.opening import OpenedStore
from jobs.rebuild.timers import CHECK, LOG, WHEEL
from storeformat import __version__
from storeformat.errors import MissingInput, Refused, WriteFailed
from storeformat.queues.topic_filter import TopicFilter
from storeformat.storage import durable, files, locations
from storeformat.storage.durable import Content, read_back
from storeformat.store.broker_rules import VERSIONS
from storeformat.store.config_files import DELAYS, OFFSETS, OFFSETS_WITH_LIGHT_GROUPS, TOPICS
from storeformat.store.layout import CONSUME_QUEUE, QUEUE_KINDS, ROCKSDB_QUEUES
from udfs.files.build import rows_of

MANIFEST = "manifest.json"
FORMAT = 2


def manifest_of(options: RebuildOptions, store: OpenedStore, reading: LogReading, rows: pa.Table) -> Iterator[bytes]:
    """Text of the manifest in pieces; the files come last, one a line."""
    facts = {
        "format": FORMAT,
        "program": "rocketmq-store-spark",
        "version": __version__,
        "log_begin": reading.begin,
        "log_end": reading.end,
        "messages": reading.records,
        "broker_version": store.rules.version,
        "settings": store.settings.of_files(),
        "queue_store": store.queues_in.kind,
        "queue_store_asked_for": options.queue_store is not None,
        "on_damage": options.on_damage,
        "until_offset": options.until_offset,
        "artefacts": list(options.only),
        "topics": [str(item) for item in options.topics],
        "damaged_ranges": [item.as_row() for item in reading.damaged_places],
    }
    yield (json.dumps(facts, indent=1).removesuffix("\n}") + ',\n "files": [').encode()
    for number, row in enumerate(rows_of(rows)):
        line = {name: row[name] for name in ("path", "size", "data_size")} | {"sha256": row["sha256"].hex()}
        yield ((",\n  " if number else "\n  ") + json.dumps(line)).encode()
    yield b"\n ]\n}\n"


def write_pieces(directory: str, pieces: Iterable[bytes]) -> None:
    """Write the manifest; Refused if there is one, WriteFailed if another rebuild overwrites it."""
    path = locations.join(directory, MANIFEST)
    if files.exists(path):
        raise Refused("another rebuild wrote here at the same time", path=path)
    digest, size = hashlib.sha256(), 0
    with files.FileWriter(path) as writer:
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            writer.write(piece)
    _, stored = read_back(path, size)
    if stored != Content(size, size, digest.digest()):
        raise WriteFailed("the manifest changed after it was written: another rebuild is writing here", path=path)


class RebuiltLog(NamedTuple):
    """The part of the log that was read, and what was done about damage there."""

    begin: int
    end: int
    on_damage: str
    damaged_ranges: int


class QueueStoreChoice(NamedTuple):
    """``was_asked_for``: by an option, not derived from settings and store."""

    kind: str
    was_asked_for: bool


@dataclass(frozen=True)
class Manifest:
    """``files``: paths below DIR to contents; ``settings``: broker.conf names; ``digest``: SHA-256 of the manifest."""

    digest: str
    log: RebuiltLog
    broker_version: str
    artefacts: tuple[str, ...]
    topics: tuple[tuple[str, int | None], ...]
    settings: Mapping[str, str]
    files: Mapping[str, Content]
    queue_store: QueueStoreChoice

    @property
    def whole(self) -> bool:
        """It covers everything that a broker derives from the log, for all topics."""
        return not self.topics and set(ARTEFACTS) <= set(self.artefacts)

    @property
    def size(self) -> int:
        return sum(content.size for content in self.files.values())

    @property
    def data_size(self) -> int:
        return sum(content.data_size for content in self.files.values())

    def roots(self) -> list[str]:
        """Paths below the store that this rebuild replaces, even without files there."""
        if self.topics:
            named = [topic if queue is None else f"{topic}/{queue}" for topic, queue in self.topics]
            kinds = [kind for kind in QUEUE_KINDS if kind == CONSUME_QUEUE or self._fills(kind)]
            return sorted({f"{kind}/{name}" for kind in kinds for name in named if _is_inside(name)})
        filled = [kind for kind in QUEUE_KINDS[1:] if self._fills(kind)]
        if CONSUME_QUEUE in self.artefacts and self.queue_store.kind == "rocksdb":
            filled.append(ROCKSDB_QUEUES)  # brokers do not start with a database in the other directory, too
        offsets = OFFSETS_WITH_LIGHT_GROUPS if OFFSETS_WITH_LIGHT_GROUPS in self.files else OFFSETS
        paths: dict[str, tuple[str, ...]] = {
            CONSUMER_OFFSETS: (offsets,),
            DELAY_OFFSETS: (DELAYS,),
            TIMERS: (LOG, WHEEL, CHECK),
        }
        named = [path for name in self.artefacts for path in paths.get(name, (name,))]
        return [*named, *filled, *([TOPICS] if TOPICS in self.files else [])]

    def _fills(self, kind: str) -> bool:
        return any(path.startswith(f"{kind}/") for path in self.files)


def read_manifest(directory: str) -> Manifest:
    """Read and check the manifest of a finished rebuild."""
    path = locations.join(directory, MANIFEST)
    if not files.exists(directory):
        raise MissingInput("there is no such directory", path=directory)
    if not files.exists(path):
        advice = "run rebuild --output first"
        if not files.list_directory(directory):
            advice += (
                " (an empty one was published: what it held is in that store, and its manifest in the store's backup/)"
            )
        raise Refused("this is not a finished rebuild: it has no manifest", path=path, advice=advice)
    data = files.read_bytes(path)
    try:
        facts: dict[str, Any] = json.loads(data)
        if facts["format"] != FORMAT:
            raise Refused(
                "another version of this program wrote this manifest", path=path,
                found=facts["format"], expected=FORMAT, advice="run rebuild again",
            )  # fmt: skip
        manifest = Manifest(
            digest=hashlib.sha256(data).hexdigest(),
            log=RebuiltLog(
                int(facts["log_begin"]), int(facts["log_end"]), str(facts["on_damage"]), len(facts["damaged_ranges"])
            ),
            broker_version=str(facts["broker_version"]),
            artefacts=tuple(map(str, facts["artefacts"])),
            topics=tuple((item.topic, item.queue_id) for item in map(TopicFilter.parse, facts["topics"])),
            settings={str(name): str(value) for name, value in facts["settings"].items()},
            files={str(row["path"]): _content(row) for row in facts["files"]},
            queue_store=QueueStoreChoice(
                str(facts.get("queue_store", "file")), facts.get("queue_store_asked_for") is True
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Refused("the manifest cannot be understood", path=path, advice="run rebuild again") from error
    if manifest.queue_store.kind not in ("file", "rocksdb"):
        raise Refused("the manifest names an unknown place of queues", path=path, advice="run rebuild again")
    if manifest.broker_version not in VERSIONS or not set(manifest.artefacts) <= set(MADE):
        raise Refused("the manifest names an unknown release or artefact", path=path, advice="run rebuild again")
    roots = set(manifest.roots())
    for name in manifest.files:
        if not (_is_inside(name) and not roots.isdisjoint(locations.with_parents(name))):
            raise Refused("the manifest names a file that does not belong to its artefacts", path=path, found=name)
    return manifest


def _content(row: Mapping[str, Any]) -> Content:
    content = Content(int(row["size"]), int(row["data_size"]), bytes.fromhex(row["sha256"]))
    if not 0 <= content.data_size <= content.size:
        raise ValueError("no content of a file")
    return content


def _is_inside(path: str) -> bool:
    return not any(part in ("", ".", "..") for part in path.split("/"))


def check_files(directory: str, manifest: Manifest, reporter: Reporter) -> None:
    """Check that DIR holds exactly the manifest's files, and sync them; files cut to their data are extended."""
    base = len(locations.join(locations.local_path(directory), ""))
    directories, others = durable.tree(directory)
    found = {path[base:]: path for path in others}
    found.pop(MANIFEST, None)
    for name in sorted(found.keys() | manifest.files.keys()):
        if name not in found:
            raise Refused("a file of the manifest is missing", path=locations.join(directory, name))
        if name not in manifest.files or not durable.is_plain_file(found[name]):
            raise Refused("this file is not in the manifest", path=found[name], advice="move it away")
        durable.refuse_other_names(found[name])
        expected = manifest.files[name]
        if expected.data_size < expected.size and files.size_of(found[name]) == expected.data_size:
            with files.writing(found[name]):
                os.truncate(found[name], expected.size)
    names = sorted(manifest.files)
    with reporter.progress("check the rebuild", manifest.data_size) as progress:
        sizes = [(found[name], manifest.files[name].data_size) for name in names]
        rows = durable.contents_on_disk(sizes, progress.update)
    for name, row in zip(names, rows, strict=True):
        if row != manifest.files[name]:
            raise Refused(
                "a file differs from what the rebuild wrote", path=found[name],
                found=row, expected=manifest.files[name], advice="run rebuild again",
            )  # fmt: skip
    durable.sync_all(directories)
