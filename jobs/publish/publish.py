"""``publish``: replace a store's artefacts by a finished rebuild, all or nothing (``jobs.publish.swap``).
Everything is checked before the first file moves. Files are renamed, so the rebuild must be on the store's file system.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.contract.options import PublishOptions
from jobs.contract.report import Report, Reporter, command, quoted
from jobs.preflight.preflight import start_facts
from jobs.publish import backups, swap
from jobs.publish.swap import PUBLISH, SWAPPING, Swap, SwapJournal, SwapLog, SwapPath
from jobs.rebuild.manifest import MANIFEST, Manifest, check_files, read_manifest
from storeformat.errors import MissingInput, Refused
from storeformat.storage import durable, files, locations
from storeformat.store.broker_rules import DEFAULT
from storeformat.store.config_files import TOPICS, configured_batch_topics
from storeformat.store.layout import (
    ABORT,
    BACKUP,
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    ROCKSDB_QUEUES,
    ROCKSDB_STORE,
    holds_pairs,
    rocksdb_queues,
)
from storeformat.store.segment_files import commit_log_directories
from storeformat.store.settings import SEPARATE, Settings, read_settings


def run(options: PublishOptions, reporter: Reporter) -> Report:
    """Publish a rebuild; Refused for a running broker, or a rebuild of another log."""
    root = backups.local_root(options.store, log_elsewhere=bool(options.commitlog))
    backups.refuse_other_user(root)
    source = files.resolved(locations.absolute(options.rebuilt))
    _refuse_elsewhere(root, source)
    settings = read_settings(options.broker_conf)  # read before anything moves
    with backups.stopped_store(root, dry_run=options.dry_run):
        facts = _publish(root, source, options, reporter)
    if not options.dry_run:  # the lock is given back: to ask about it would drop it
        made = read_manifest(locations.join(root, BACKUP, facts["backup"]))
        expected = {**made.settings, "storeType": "defaultRocksDB" if made.queue_store.kind == "rocksdb" else ""}
        expected |= {"storePathCommitLog": ",".join(options.commitlog)} if options.commitlog else {}
        given = [(name, text) for name, text in expected.items() if text and name not in settings.given]
        if options.commitlog and "storePathCommitLog" not in settings.given:
            needed = f"broker.conf must say storePathCommitLog={expected['storePathCommitLog']}"
            facts["notes"] = [*facts["notes"], needed]
        version = None if made.broker_version == DEFAULT else made.broker_version  # it may be assumed
        facts |= start_facts(root, options.broker_conf, given, version)
    return backups.swap_report("publish", facts, reporter, options)


def _refuse_elsewhere(root: str, source: str) -> None:
    device = files.device_of
    if locations.is_local(source) and (not files.exists(source) or device(source) == device(files.resolved(root))):
        return  # an absent one is named later
    place = locations.join(root, BACKUP, locations.name_of(source))
    how = f"copy it to {quoted(place)}"
    if locations.is_local(source):
        how = command("cp", "-a", source, place)
    elif source.startswith("s3://"):
        how = command("aws", "s3", "cp", "--recursive", locations.split_settings(source)[0], place)
    raise Refused(
        "this rebuild is not on the file system of the store, and publish only renames", path=source,
        advice=f"{how}, then publish --from {quoted(place)}",
    )  # fmt: skip


def _publish(root: str, source: str, options: PublishOptions, reporter: Reporter) -> dict[str, Any]:
    known = swap.swaps(root)
    undone, left = None, list[str]()
    if (open_one := backups.unfinished(known)) is not None:
        backups.check_unfinished(open_one, known, source)
        again = _same_publish(open_one, source) and backups.log_trouble(root, open_one.journal.log) is None
        if options.dry_run:
            return backups.would_settle(open_one, "finished" if again else "undone")
        if again:
            reporter.say(f"finishing the publish {open_one.name} that was cut short")
            return backups.swap_facts(swap.finish(open_one), finished=open_one.name)
        reporter.say(f"undoing the {open_one.journal.kind} {open_one.name} that was cut short")
        left = backups.undo(open_one, source)
        undone, known = open_one.name, swap.swaps(root)
    if (done := _published_before(known, source, dry_run=options.dry_run)) is not None:
        left.append("this rebuild had been published already")
        return backups.swap_facts(done, dry_run=options.dry_run, undone=undone, notes=left)
    manifest = read_manifest(source)
    notes = left + _check_store(root, manifest, options)
    _check_queue_types(source if TOPICS in manifest.files else root, manifest)
    log = _check_log(root, manifest, options.commitlog)
    backups.refuse_mapped_log(log.directories)
    check_files(source, manifest, reporter)
    places = _places(root, source, manifest)
    backups.check_places(root, places, *([] if options.dry_run else [source]))
    number = backups.next_sequence(known)
    journal = SwapJournal(PUBLISH, number, source, places, log, papers=(MANIFEST,), digest=manifest.digest)
    done = Swap(root, "", journal) if options.dry_run else backups.carry_out(root, journal)
    return backups.swap_facts(
        done, dry_run=options.dry_run, undone=undone, notes=notes, files=len(manifest.files), file_bytes=manifest.size
    )


def _same_publish(item: Swap, source: str) -> bool:
    journal = item.journal
    if journal.kind != PUBLISH or journal.state != SWAPPING or journal.source != source:
        return False
    return not files.exists(locations.join(source, MANIFEST)) or read_manifest(source).digest == journal.digest


def _published_before(known: Sequence[Swap], source: str, *, dry_run: bool) -> Swap | None:
    """The newest swap if it published ``source`` and emptied it, except perhaps for the manifest."""
    newest = swap.newest_publish(known)
    if newest is None:
        return None
    left = {entry.name for entry in files.list_directory(source) or []} if files.exists(source) else {""}
    if newest.journal.source != source or not left <= {MANIFEST} or (left and not backups.holds_its_manifest(newest)):
        return None
    if not dry_run:
        swap.tidy(newest)
    return newest


def _check_store(root: str, manifest: Manifest, options: PublishOptions) -> list[str]:
    notes = []
    if durable.present(locations.join(root, ABORT)):
        if not options.after_crash:
            raise Refused(
                "the store is live, or its broker did not stop cleanly: abort exists", path=locations.join(root, ABORT),
                advice="make sure that no broker runs on it, then publish --after-crash",
            )  # fmt: skip
        if not manifest.whole:
            notes.append("abort stays: only a part was rebuilt, and the rest may need the broker's own recovery")
    notes += _queue_store_notes(root, manifest) if CONSUME_QUEUE in manifest.artefacts else []
    if holds_pairs(locations.join(root, ROCKSDB_STORE)):
        notes.append(
            "rocksdbstore/ holds entries of its own (index, transactions or timers), which are not touched: if the log "
            "is shorter than it once was, move rocksdbstore/ away before the broker starts"
        )
    if CONSUME_QUEUE in manifest.artefacts and not manifest.whole:
        notes.append(
            "a broker resumes where the furthest queue ends: other queues, or an index, that end before that will stay "
            "incomplete; verify names them, and a rebuild of everything completes them"
        )
    if manifest.log.damaged_ranges:
        notes.append(_damage_note(manifest, options))
    return notes


def _queue_store_notes(root: str, manifest: Manifest) -> list[str]:
    notes, kind = [], manifest.queue_store.kind
    evidence = rocksdb_queues(root, Settings(manifest.settings))
    if evidence and kind == "file" and (manifest.topics or not manifest.queue_store.was_asked_for):
        raise Refused(
            f"this store keeps its queues in RocksDB (storeType=defaultRocksDB), not in files: {evidence}", path=root,
            advice="rebuild again; --queue-store file, of all topics, if the broker is to have files from now on",
        )  # fmt: skip
    if kind == "rocksdb" and not evidence:
        notes.append("these queues are a RocksDB database: broker.conf must say storeType=defaultRocksDB")
    if kind == "file" and evidence:
        notes.append(f"these queues are files, but {evidence}: broker.conf must say storeType=default")
    if kind == "rocksdb" and any(name.startswith(f"{ROCKSDB_QUEUES}/") for name in manifest.files):
        notes.append(f"the database goes to {ROCKSDB_QUEUES}/: broker.conf must say {SEPARATE}=true")
    if kind == "file" and not evidence and durable.present(locations.join(root, CONSUME_QUEUE, "CURRENT")):
        notes.append("the database beside the queues in consumequeue/ goes to the backup, and none takes its place")
    if kind == "file" and durable.present(locations.join(root, ROCKSDB_QUEUES, "CURRENT")):
        notes.append("consumequeue_rocksdb/ holds queues in RocksDB, too; they are not touched")
    return notes


def _damage_note(manifest: Manifest, options: PublishOptions) -> str:
    places = f"{manifest.log.damaged_ranges} damaged places (--on-damage {manifest.log.on_damage})"
    danger = (
        f"these files are from a log with {places}: a broker that starts on it may cut it at the first of them and "
        "delete what follows; keep commitlog/, and start the broker on"
    )
    if options.commitlog:
        return f"{danger} {', '.join(map(quoted, options.commitlog))}, with what rebuild --repair-log wrote in it"
    repaired = "the segments that rebuild --on-damage salvage --repair-log DIR repairs"
    return f"{danger} a copy with {repaired} (publish --commitlog COPY)"


def _check_queue_types(configured: str, manifest: Manifest) -> None:
    """Refuse queues that a 5.x broker would not load (``ConsumeQueueStore#queueTypeShouldBe``)."""
    batch = configured_batch_topics(configured)
    if batch is None or manifest.queue_store.kind == "rocksdb":
        return  # a broker without it takes every queue as it finds it
    for name in manifest.files:
        kind, _, rest = name.partition("/")
        is_batch = rest.partition("/")[0] in batch
        if (kind == CONSUME_QUEUE and is_batch) or (kind == BATCH_CONSUME_QUEUE and not is_batch):
            raise Refused(
                "config/topics.json has another type for this queue: no broker would start with it",
                path=name, found=kind, expected=BATCH_CONSUME_QUEUE if is_batch else CONSUME_QUEUE,
                advice="rebuild with the --batch-topic that config/topics.json names, or correct that file",
            )  # fmt: skip


def _check_log(root: str, manifest: Manifest, named: Sequence[str]) -> SwapLog:
    given = {name: text for name, text in manifest.settings.items() if text.lower() != "false"}  # a default, perhaps
    directories = tuple(commit_log_directories(root, Settings(given), named))
    if missing := [path for path in directories if not files.exists(path)]:
        raise MissingInput("there is no commit log", path=missing[0], advice="--commitlog PATH[,PATH] says where it is")
    log = SwapLog(
        manifest.log.begin, manifest.log.end, directories, manifest.broker_version,
        past_damage=manifest.log.on_damage == "salvage", as_broker=manifest.log.on_damage == "stop",
    )  # fmt: skip
    if (trouble := backups.log_trouble(root, log)) is not None:
        raise Refused(
            f"the rebuild does not match the log as it is now: {trouble}",
            advice="run rebuild again, then publish; what rebuild --repair-log DIR wrote belongs into a copy of the log"
            " (publish --commitlog COPY)",
        )
    return log


def _places(root: str, source: str, manifest: Manifest) -> tuple[SwapPath, ...]:
    """What is swapped: whole artefacts or queue directories, or the first parent that the store lacks."""
    filled = {path for name in manifest.files for path in locations.with_parents(name)}
    paths = []
    for path in manifest.roots():
        parts = path.split("/")
        grown = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        paths.append(next((item for item in grown if not durable.present(locations.join(root, item))), path))
    places = []
    for path in dict.fromkeys(paths):
        is_new = durable.present(locations.join(source, path)) or path in filled
        places.append(SwapPath(path, durable.present(locations.join(root, path)), is_new))
    if manifest.whole and durable.present(locations.join(root, ABORT)):
        places.append(SwapPath(ABORT, old=True, new=False))
    return tuple(place for place in places if place.old or place.new)
