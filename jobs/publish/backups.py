"""What ``publish`` and ``restore`` share: the lock, swaps that a crash interrupted, and swaps themselves."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from jobs.contract.options import PublishOptions, RestoreOptions
from jobs.contract.report import Report, Reporter, command, program, step_after
from jobs.publish import swap
from jobs.publish.swap import (
    FINISHED,
    JOURNAL,
    PUBLISH,
    RESTORE,
    STAGING,
    SWAPPING,
    Swap,
    SwapJournal,
    SwapLog,
    SwapPath,
)
from jobs.rebuild.manifest import MANIFEST, read_manifest
from storeformat.errors import DependencyMissing, MissingInput, NotAStore, Refused, StoreFormatError
from storeformat.log.log_end import check_log_end
from storeformat.record.decode import DecodeRules
from storeformat.storage import broker_lock, durable, files, locations
from storeformat.store.broker_rules import rules_of
from storeformat.store.layout import BACKUP, COMMIT_LOG, CONSUME_QUEUE, DATA, LOCK, is_file_name
from storeformat.store.segment_files import find_segments, group_directories, groups_of, with_committed

_SIGNS = {COMMIT_LOG, CONSUME_QUEUE, "config", LOCK}
"""Every store that a broker has opened has one of these."""


def local_root(store: str, *, log_elsewhere: bool = False) -> str:
    """Absolute path of a local store's root; DependencyMissing if it is not local."""
    root = locations.absolute(store)
    if not locations.is_local(root):
        raise DependencyMissing("only a local store can be changed: this storage cannot rename in one step", path=root)
    if not files.exists(root):
        raise MissingInput("there is no such store", path=root)
    names = {entry.name for entry in files.list_directory(root) or []}
    advice = "--store must be the broker's storePathRootDir"  # of a directory in it, a lock file could stop the broker
    if any(is_file_name(name) for name in names):
        raise NotAStore("this directory holds segments or queue files, it is not a store", path=root, advice=advice)
    if MANIFEST in names and not names & {COMMIT_LOG, LOCK}:
        raise NotAStore("this is the output of a rebuild, not a store", path=root, advice=advice)
    if not (log_elsewhere or names & _SIGNS or group_directories(root)):
        signs = " or ".join(sorted(_SIGNS))
        raise MissingInput("this is not a broker's store", path=root, expected=signs, advice=advice)
    return root


def refuse_other_user(root: str) -> None:
    """Require the owner of the store; the advice is the command to run as that user."""
    status = files.status_of(root)
    if status is None or status.owner == os.geteuid():
        return
    become = ["setpriv", "--reuid", str(status.owner), "--regid", str(status.group), "--clear-groups"]
    if shutil.which("sudo"):
        with suppress(KeyError):  # as of many users of containers
            become = ["sudo", "-u", pwd.getpwuid(status.owner).pw_name]
    raise Refused(
        "only the owner of a store changes it", path=root,
        found=f"user {os.geteuid()}", expected=f"user {status.owner}",
        advice=command(*become, program(), *sys.argv[1:]),
    )  # fmt: skip


@contextmanager
def stopped_store(root: str, *, dry_run: bool) -> Iterator[None]:
    """Hold the broker's lock; Refused if a broker has the store."""
    with broker_lock.hold(locations.join(root, LOCK), create=not dry_run):
        groups = (locations.join(group, DATA) for group in group_directories(root))
        refuse_mapped_log([locations.join(root, COMMIT_LOG), *groups])
        yield


def refuse_mapped_log(directories: Sequence[str]) -> None:
    """Refuse if a process maps the log: a broker that is still loading has not taken its lock yet."""
    for log in directories:
        if (process := broker_lock.mapped_by(log)) is not None:
            raise Refused(
                f"the store is live: process {process} has its log mapped into memory",
                path=log, advice="stop the broker first",
            )  # fmt: skip


def unfinished(known: Sequence[Swap]) -> Swap | None:
    """The swap that a crash interrupted; there is at most one because every run settles it first."""
    return next((item for item in reversed(known) if item.journal.state in (STAGING, SWAPPING)), None)


def next_sequence(known: Sequence[Swap]) -> int:
    """Number of the next swap; after the last number the order follows the names, which are times."""
    return min(1 + max((item.journal.sequence for item in known), default=0), swap.LAST_SEQUENCE)


def would_settle(item: Swap, how: str) -> dict[str, Any]:
    """Report facts of a dry run that found an interrupted swap."""
    note = f"the {item.journal.kind} {item.name} was cut short; it would be {how} first"
    return {"store": item.root, "backup": item.name, "dry_run": True, "notes": [note]}


def swap_report(
    job: str, facts: dict[str, Any], reporter: Reporter, options: PublishOptions | RestoreOptions
) -> Report:
    """The report of a swap, with the answer of ``preflight`` first."""
    placed = facts.get("replaced") or facts.get("restored") or ["nothing"]
    facts["verdict"] = ("would be " if options.dry_run else "") + job.removesuffix("e") + "ed"
    if "answer" in facts:
        facts["verdict"] += f", {facts['answer']}"
        facts["next"] = step_after(facts, options)
    kept = f"; what was there is in {BACKUP}/{facts['backup']}" if facts.get("backup") else ""
    facts["figures"] = ", ".join(placed) + kept
    return reporter.report(job, **facts)


def swap_facts(
    done: Swap,
    *,
    dry_run: bool = False,
    finished: str | None = None,
    undone: str | None = None,
    notes: Sequence[str] = (),
    **facts: Any,
) -> dict[str, Any]:
    """Report facts of a swap; ``facts`` are those of its kind."""
    journal = done.journal
    return {
        "store": done.root,
        "source": done.source,
        "log_begin": journal.log.begin,
        "log_end": journal.log.end,
        "replaced" if journal.kind == PUBLISH else "restored": [place.path for place in journal.places if place.new],
        "backup": done.name or None,
        "backed_up": [place.path for place in journal.places if place.old],
        **facts,
        "finished_earlier_run": finished,
        "undone_earlier_run": undone,
        "dry_run": dry_run,
        "notes": notes,
    }


def log_trouble(root: str, log: SwapLog) -> str | None:
    """Why the log no longer is the one of a swap, or None."""
    try:
        groups = groups_of(log.directories) or group_directories(root)
        segments, committed = with_committed(find_segments(log.directories, None), groups)
        if segments[0].base != log.begin:
            return f"the log starts at {segments[0].base}, not at {log.begin}"
        rules = DecodeRules(split_parser=rules_of(log.broker_version).split_parser, as_broker=log.as_broker)
        check_log_end(segments, log.end, rules, past_damage=log.past_damage, committed=committed.end)
    except StoreFormatError as error:
        return str(error)
    return None


def check_places(root: str, places: Sequence[SwapPath], *sources: str) -> None:
    """Refuse paths that cannot be renamed into the backup or out of ``sources``: mounts, links, missing permissions."""
    moved = [place.path for place in places]
    if link := _link_above(root, root, [locations.join(BACKUP, ""), *moved]):
        raise Refused("a link is in the way", path=link, advice="nothing was changed")
    for source in sources:
        refuse_links(root, source, moved)
    for path in (locations.join(base, name) for base in (root, *sources) for name in [BACKUP, *moved]):
        for directory in filter(durable.is_directory, (locations.parent_of(path), path)):
            if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
                raise Refused(
                    "this user may not move or change this directory", path=directory,
                    advice="give it to the owner of the store, with all that is in it (chown -R)",
                )  # fmt: skip
        if locations.is_inside(path, root) and durable.present(path) and files.crosses_mount(root, path):
            raise Refused(
                "this is a separate mount and cannot be renamed in one step", path=path,
                advice="unmount it, or have the broker's storePathRootDir on one file system",
            )  # fmt: skip


def refuse_links(root: str, base: str, paths: Iterable[str]) -> None:
    """Raise NotAStore where a link leads away from paths below ``base``, a directory of the store or of a rebuild."""
    if link := _link_above(root, base, paths):
        raise NotAStore("a link leads away from this path", path=link, advice="nothing was changed")


def _link_above(root: str, base: str, paths: Iterable[str]) -> str | None:
    real = files.resolved(root)
    for name in dict.fromkeys(["", *(path.rpartition("/")[0] for path in paths)]):
        above = locations.join(base, name).rstrip("/")
        inside = locations.is_inside(above, root)
        if files.resolved(above) != (os.path.normpath(real + above[len(root) :]) if inside else above):
            return above
    return None


def check_unfinished(item: Swap, known: Sequence[Swap], given: str | None = None) -> None:
    """Check an interrupted swap as ``check_places``; its journal may lead only into the store or its rebuild."""
    moved = [place.path for place in item.journal.places]
    check_places(item.root, item.journal.places, item.directory)
    refuse_links(item.root, item.at("new"), moved)
    backups = {one.name for one in known if one.journal.state == FINISHED}
    if item.journal.kind == RESTORE and item.journal.source not in backups:
        what = "this journal restores what is no backup of the store"
        raise NotAStore(what, path=item.at(JOURNAL), found=item.journal.source)
    if is_our_source(item, given):
        refuse_links(item.root, item.source, moved)


def is_our_source(item: Swap, given: str | None = None) -> bool:
    """True if new files may go back: the user names the source or it holds the manifest (journals may be forged)."""
    return item.journal.kind == RESTORE or item.source == given or holds_its_manifest(item)


def holds_its_manifest(item: Swap) -> bool:
    """True if the source of a publish still holds the manifest of what was published."""
    with suppress(StoreFormatError):
        return read_manifest(item.source).digest == item.journal.digest
    return False


def carry_out(root: str, journal: SwapJournal) -> Swap:
    """Carry out a swap; any failure, also a signal, restores the previous state."""
    item = swap.begin(root, journal)
    try:
        return swap.finish(swap.stage(item))
    except BaseException:
        newest = next(one for one in swap.swaps(root) if one.name == item.name)
        if newest.journal.state in (STAGING, SWAPPING):
            swap.undo(newest)
        raise


def undo(item: Swap, given: str | None = None) -> list[str]:
    """Undo an interrupted swap; returns notes."""
    is_ours = is_our_source(item, given)
    swap.undo(item, is_our_source=is_ours)
    if is_ours or not durable.present(item.at("new")):
        return []
    return [f"what {item.name} was to publish stays in {item.at('new')}: only its journal says where it came from"]
