"""``recover``: one command for the store of a stopped broker: look, plan, and with ``--yes`` mend it and look again.

    preflight --reasons--> plan --rebuild--> work directory --publish--> store --preflight--> start the broker

It composes these jobs and adds no rule: ``rules.ini`` says for each reason what is made again. Killed at any point it
goes on when called again: a rebuild that was not published is made anew.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobs.contract.options import (
    ARTEFACTS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    MADE,
    TIMERS,
    Artefact,
    PublishOptions,
    RebuildOptions,
    RecoverOptions,
)
from jobs.contract.report import Report, Reporter, counted, job_command, losses_text, reason_lines, size_text
from jobs.preflight import preflight
from jobs.preflight.configuration import repaired_log
from jobs.publish import backups, publish
from jobs.rebuild import rebuild
from storeformat.errors import DamagedLog, MissingInput, RecordDefect, Refused
from storeformat.storage import files, locations
from storeformat.store.layout import BACKUP, REPAIRED_LOG, is_file_name
from storeformat.store.segment_files import commit_log_directories
from storeformat.store.settings import read_settings

_PARTS: dict[str, tuple[Artefact, ...]] = {
    "queues": ARTEFACTS,
    "index": ("index", "checkpoint"),
    "timers": (TIMERS,),
    "offsets": (CONSUMER_OFFSETS,),
    "delays": (DELAY_OFFSETS,),
    "topics": ARTEFACTS,  # the queues of all topics say which there were
    "log": ARTEFACTS,
}
_DECIDE = "decide"
_LOSSES = ("lost_messages", "lost_messages_at_least", "losses")
_REBUILT, _REPAIRED = "rebuilt", "repaired"


@dataclass
class _Course:
    """What is planned, or was done. ``log``: a repaired one that broker.conf does not name; ``torn``: offsets lost."""

    log: str | None
    lines: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    losses: dict[str, Any] = field(default_factory=dict)
    torn: bool = False


def run(options: RecoverOptions, reporter: Reporter) -> Report:
    """Recover a store. Exit code 0: the broker may be started."""
    made = set[str]()
    root = files.resolved(locations.absolute(options.store))
    if options.yes:
        backups.refuse_other_user(root)
    course = _Course(repaired_log(root, read_settings(options.broker_conf, options.settings)))
    kept = Path(f"{_work_of(options)}.json")  # what a run has done that was killed between two publishes
    if options.yes and kept.exists():
        course = _Course(**json.loads(kept.read_bytes()) | {"log": course.log})  # broker.conf may name it by now
    if course.log is not None:
        options = _with_log(options, course.log)
    while True:
        look = preflight.run(options, Reporter(quiet=True))
        parts = ({part for reason in look["reasons"] for part in reason["recover"].split()} & _PARTS.keys()) - made
        decide = any(
            reason["unsafe"] and reason["recover"] == _DECIDE
            and not ("log" in parts and reason["rule"] == "replica_longer")  # where a damaged log ends is not known yet
            for reason in look["reasons"]
        )  # fmt: skip
        found = _rebuild(options, parts, reporter) if parts and not decide else None
        if found is None:
            if options.yes:
                with suppress(Refused):  # what a run left that was killed after its publish
                    _clear(_work_of(options))
                kept.unlink(missing_ok=True)
            as_it_was = "" if course.log is None else "set storePathCommitLog as it was, then "
            course.lines += [f"the way back: {as_it_was}{'; '.join(course.back)}"] if course.back else []
            return _report(options, look, course, reporter)
        rebuilding, rebuilt = found
        lines = _plan_lines(rebuilding, rebuilt, lost=not course.losses)
        course.lines += [line for line in lines if line not in course.lines]  # notes are said once
        if not course.losses:  # a second rebuild counts what fills the repaired log
            course.losses = {name: rebuilt[name] for name in _LOSSES if losses_text(rebuilt)}
        course.torn |= options.yes and rebuilt.get("offsets_torn", False)
        if not options.yes:
            return _report(options, look, course, reporter)
        if rebuilt["repaired_segments"]:
            course.log = _repaired_log(rebuilding, rebuilt["log_end"])
            options = replace(_with_log(options, course.log), replicas=())
        publishing = PublishOptions(
            store=options.store, rebuilt=rebuilding.output, broker_conf=options.broker_conf,
            commitlog=() if course.log is None else (course.log,), after_crash=look["after_crash"],
        )  # fmt: skip
        published = publish.run(publishing, reporter)
        shutil.rmtree(_work_of(options), ignore_errors=True)
        made |= parts
        course.back.insert(0, job_command("restore", options, "--backup", published["backup"]))
        files.replace_bytes(str(kept), json.dumps(vars(course)).encode())


def _with_log(options: RecoverOptions, log: str) -> RecoverOptions:
    return replace(options, settings=(*options.settings, ("storePathCommitLog", log)))


def _work_of(options: RecoverOptions) -> str:
    return locations.absolute(options.work or options.store.rstrip("/") + ".recover")


def _rebuild(options: RecoverOptions, parts: set[str], reporter: Reporter) -> tuple[RebuildOptions, Report] | None:
    """The rebuild that takes the reasons away, with ``--yes`` made, else its dry run; past damage if the log is not
    sound. None if nothing can be made: no copy shows how far groups had read.
    """
    work, device = _work_of(options), files.device_of
    above = locations.parent_of(work)
    while not files.exists(above):
        above = locations.parent_of(above)
    if device(above) != device(files.resolved(options.store)):
        advice = f"name another with --work DIR, such as {locations.join(options.store, BACKUP, 'recover')}"
        raise Refused("this is not on the file system of the store", path=work, advice=advice)
    only = {artefact for part in parts for artefact in _PARTS[part]}
    rebuilding = RebuildOptions(
        store=options.store, broker_conf=options.broker_conf, settings=options.settings,
        broker_version=options.broker_version, replicas=options.replicas, output=locations.join(work, _REBUILT),
        repair_log=locations.join(work, _REPAIRED) if options.replicas else None,
        only=tuple(artefact for artefact in MADE if artefact in only), topics_json="topics" in parts,
    )  # fmt: skip
    past_damage = replace(
        rebuilding, on_damage="salvage", repair_log=locations.join(work, _REPAIRED),
        only=tuple(artefact for artefact in MADE if artefact in {*only, *ARTEFACTS}),
    )  # fmt: skip
    reporter.say("reading the log")
    way = past_damage if "log" in parts else rebuilding
    try:
        if options.yes:
            _clear(work)
            Path(work).mkdir(parents=True)
            return way, rebuild.run(way, reporter)
        # names that no earlier run has left
        repaired = None if way.repair_log is None else f"{way.repair_log}-anew"
        dry_run = replace(way, dry_run=True, output=f"{way.output}-anew", repair_log=repaired)
        return way, rebuild.run(dry_run, reporter)
    except DamagedLog as error:
        if way is past_damage:
            raise
        reporter.say(str(error))
        return _rebuild(options, {*parts, "log"}, reporter)
    except MissingInput as error:
        if CONSUMER_OFFSETS not in way.only:
            raise
        if options.yes:
            _clear(work)
        reporter.note(f"{error}; {error.advice}")
        others = parts - {"offsets"}
        return _rebuild(options, others, reporter) if others else None


def _clear(path: str) -> None:
    """Remove what an interrupted run left in the work directory, and nothing else."""
    work = Path(path)
    there = work.iterdir() if work.exists() else ()
    if other := [path for path in there if path.name.lstrip(".").partition(".")[0] not in (_REBUILT, _REPAIRED)]:
        advice = "name another with --work DIR"
        raise Refused("the work directory holds something else", path=str(other[0]), advice=advice)
    shutil.rmtree(work, ignore_errors=True)


def _repaired_log(rebuilding: RebuildOptions, log_end: int) -> str:
    """A directory in the store with the repaired segments, and links to the others; copies where the broker goes on."""
    made = Path(rebuilding.repair_log or "")
    settings = read_settings(rebuilding.broker_conf, rebuilding.settings)
    for directory in commit_log_directories(locations.absolute(rebuilding.store), settings):
        for path in filter(lambda path: is_file_name(path.name), Path(directory).iterdir()):
            size = path.stat().st_size
            if size and not (made / path.name).exists():
                linked = int(path.name) + size <= log_end and path.stat().st_dev == made.stat().st_dev
                (os.link if linked else shutil.copy2)(path, made / path.name)
    number = 0
    while (target := Path(rebuilding.store, f"{REPAIRED_LOG}{number}")).exists():
        number += 1
    made.rename(target)
    return str(target.absolute())


def _plan_lines(rebuilding: RebuildOptions, rebuilt: Report, *, lost: bool) -> list[str]:
    made = ", ".join([*rebuilding.only, *(["topics.json"] if rebuilding.topics_json else [])])
    lines = [f"rebuild {made}: {size_text(rebuilt['disk_bytes'])} of disk"]
    if healed := rebuilt.get("healed_ranges"):
        lines.append(f"repair the log: {counted(len(healed), 'range')} from a replica")
    if lost and (rebuilt["damaged_ranges"] or losses_text(rebuilt)):
        repair = "repair the log: " if rebuilt["damaged_ranges"] else ""
        lines.append(f"{repair}{losses_text(rebuilt) or 'no message is lost'}")
    if any(row["reason"] == str(RecordDefect.BODY_CRC) for row in rebuilt["damaged_ranges"]):
        lines.append("records whose body alone is damaged count as lost: rebuild --keep-crc-failures keeps these")
    lines += rebuilt["notes"]
    if rebuilt["dry_run"]:
        if "consumequeue" in rebuilding.only:
            lines.append("a second publish sets offsets, delay levels and timers beyond the log, if there are any")
        lines.append(f"{max(rebuilt['seconds'], 1):.0f} s to read the log, and about as much to write")
    return lines


def _report(options: RecoverOptions, look: Report, course: _Course, reporter: Reporter) -> Report:
    reasons, log = look["reasons"], course.log
    unsafe = [reason for reason in reasons if reason["unsafe"]]
    only_planned = bool(course.lines) and not options.yes
    safe = look["answer"].startswith("safe") and not course.torn
    start = ("" if log is None else f"put storePathCommitLog={log} into broker.conf, then ") + "start the broker"
    decided = "decide first" + " what groups of the torn offsets read" * course.torn
    decided += f", then {start}" if course.torn or log is not None else ""
    verdict = "run it again with --yes" if only_planned else start if safe else decided
    figures = f"{counted(len(unsafe), 'reason')} not to start, {counted(len(reasons) - len(unsafe), 'note')}"
    lines = [f"{look['answer']}: {verdict}", figures]
    planned = {"cure": ""} if only_planned else {}
    lines += reason_lines([reason | (planned if reason["recover"] not in ("", _DECIDE) else {}) for reason in reasons])
    lines += [("plan: " if only_planned else "done: ") + line for line in course.lines]
    lines += [note for note in reporter.notes if note not in course.lines]
    facts = {"answer": look["answer"], "reasons": reasons, "store": look["store"], "plan": course.lines}
    if not only_planned:  # else the same command with --yes
        facts["next"] = start if safe else ""
    report = reporter.report("recover", text=lines, damaged=course.torn, **facts)
    report.update(course.losses)
    return report
