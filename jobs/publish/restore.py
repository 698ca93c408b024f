"""``restore``: put a backup back by the same journalled swap; what it replaces becomes a backup itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.contract.options import RestoreOptions
from jobs.contract.report import Report, Reporter, quoted
from jobs.preflight.preflight import start_facts
from jobs.publish import backups, swap
from jobs.publish.swap import FINISHED, PUBLISH, RESTORE, SWAPPING, Swap, SwapJournal, SwapPath
from storeformat.errors import MissingInput, Refused
from storeformat.storage import durable, locations
from storeformat.store.layout import ABORT, BACKUP
from storeformat.store.segment_files import commit_log_directories
from storeformat.store.settings import read_settings


def run(options: RestoreOptions, reporter: Reporter) -> Report:
    """Restore a backup; Refused for a running broker or an incomplete backup."""
    root = backups.local_root(options.store)
    backups.refuse_other_user(root)
    with backups.stopped_store(root, dry_run=options.dry_run):
        facts = _restore(root, options, reporter)
    if not options.dry_run:
        facts |= start_facts(root, options.broker_conf)
    return backups.swap_report("restore", facts, reporter, options)


def _restore(root: str, options: RestoreOptions, reporter: Reporter) -> dict[str, Any]:
    known = swap.swaps(root)
    name = None if options.backup is None else locations.name_of(options.backup)
    undone, left = None, list[str]()
    if (open_one := backups.unfinished(known)) is not None:
        backups.check_unfinished(open_one, known)
        journal = open_one.journal
        again = journal.kind == RESTORE and journal.state == SWAPPING and name in (None, journal.source)
        how = "finished" if again else "undone"
        if options.dry_run:
            return backups.would_settle(open_one, how)
        reporter.say(f"the {journal.kind} {open_one.name} was cut short; it is {how} now")
        if again:
            done = swap.finish(open_one)
            return backups.swap_facts(done, finished=done.name, notes=_notes(done))
        left = backups.undo(open_one)
        undone, known = open_one.name, swap.swaps(root)
        if journal.kind == PUBLISH and name in (None, undone):
            back = [place.path for place in journal.places if place.old]
            return {"store": root, "restored": back, "undone_earlier_run": undone, "dry_run": False, "notes": left}
    chosen = _choose(known, name, root)
    backups.refuse_mapped_log(chosen.journal.log.directories)
    log, named = chosen.repaired_log, commit_log_directories(root, read_settings(options.broker_conf))
    if chosen.journal.kind == PUBLISH and log in named:
        raise Refused(
            "broker.conf names the log that was repaired for this publish, and the files from before it are of another",
            path=log, advice="set storePathCommitLog as it was before the publish, then restore",
        )  # fmt: skip
    journal = SwapJournal(RESTORE, backups.next_sequence(known), chosen.name, _places(chosen), chosen.journal.log)
    backups.check_places(root, journal.places, chosen.directory)
    done = Swap(root, "", journal) if options.dry_run else backups.carry_out(root, journal)
    return backups.swap_facts(done, dry_run=options.dry_run, undone=undone, notes=left + _notes(done))


def _choose(known: Sequence[Swap], name: str | None, root: str) -> Swap:
    spent = {item.journal.source for item in known if item.journal.kind == RESTORE and item.journal.state == FINISHED}
    fresh = [item for item in known if item.journal.state == FINISHED and item.name not in spent]
    where = locations.join(root, BACKUP)
    if name is None and not fresh:
        raise Refused("there is no backup to restore", path=where)
    chosen = fresh[-1] if name is None else next((item for item in known if item.name == name), None)
    if chosen in fresh:
        return chosen
    there = "backups: " + (", ".join(quoted(item.name) for item in fresh) or "none")
    if chosen is not None:
        raise Refused("this backup has already been restored", path=chosen.directory, advice=there)
    raise MissingInput("there is no such backup", path=f"{where}/{name}", advice=there)


def _places(chosen: Swap) -> tuple[SwapPath, ...]:
    places = []
    for place in chosen.journal.places:
        if place.old and not durable.present(chosen.at(place.path)):
            raise Refused("this backup is no longer complete", path=chosen.at(place.path))
        places.append(SwapPath(place.path, durable.present(locations.join(chosen.root, place.path)), place.old))
    return tuple(place for place in places if place.old or place.new)


def _notes(done: Swap) -> list[str]:
    notes = []
    root, places = done.root, {place.path: place for place in done.journal.places}
    abort = places.get(ABORT)
    if abort is not None and abort.new:
        notes.append("abort is back, too: the broker will recover as after a crash")
    elif durable.present(locations.join(root, ABORT)) and abort is None:
        notes.append("abort exists and stays: the broker did not stop cleanly since")
    if (trouble := backups.log_trouble(root, done.journal.log)) is not None:
        notes.append(
            f"the log has changed since these files belonged to it: {trouble}; rebuild and publish before a start"
        )
    return notes
