"""Rules on where a broker will look: the directories that broker.conf names against the store that was judged.

=================================================  ==============================================================
setting                                            without it
=================================================  ==============================================================
``storePathRootDir``                               ``~/store`` of the broker's user: not judged
``storePathCommitLog``, several paths with commas  ``commitlog/`` below it
``readOnlyCommitLogStorePaths``                    none; read only where ``storePathCommitLog`` has a comma
``enableDLegerCommitLog``                          no group: its log is in ``dledger-<dLegerSelfId>/``
=================================================  ==============================================================

No broker has a setting for the place of its queues or index: it ignores ``storePathConsumeQueue`` and
``storePathIndex`` (StorePathConfigHelper, 4.5.1 to 5.5.0). A directory that is not there has no files for
MappedFileQueue#load and MultiPathMappedFileQueue#load: the broker starts, and serves nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobs.contract.commands import command
from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import StoppedStore
from storeformat.javaproperties import as_written
from storeformat.storage import local_status, outputs
from storeformat.store.layout import COMMIT_LOG, StoreLayout, is_file_name
from storeformat.store.log_directories import paths_unread_by_broker

_ROOT, _LOG, _READ_ONLY = "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"


def paths_not_taken(store: StoppedStore) -> Iterator[Reason]:
    """Yields empty paths, and paths of the log that a broker before 4.9.2 reads otherwise: it opens
    ``~/store/commitlog`` if none is set, and takes several paths for the name of one directory.

    Mirrors MessageStoreConfig's constructor and #getStorePathCommitLog (4.6.1 to 5.5.1), and CommitLog's.
    """
    own = f"write {_LOG}={as_written(store.place(COMMIT_LOG))} in broker.conf"
    for name in (_ROOT, _LOG):
        if not store.conf.given.get(name, "x").strip(" ,"):
            what = f"{name} is empty: the broker looks at /, or where it was started"
            yield Reason(
                "store_path", what, "", "a path", own if name == _LOG else f"set {_ROOT}={as_written(store.root)}"
            )
    text = store.conf.text(_LOG, "")
    if store.rules.reads_several_paths or store.conf.flag("enableDLegerCommitLog", default=False):
        return
    if "," in text:
        what = f"a broker before 4.9.2 takes {_LOG}={text} for one directory"
        yield Reason("store_path", what, text, "one path", "put all segments into one directory, and name that")
    elif _ROOT in store.conf.given and _LOG not in store.conf.given:
        what = f"a broker before 4.9.2 opens ~/store/commitlog where {_LOG} is not set, whatever {_ROOT} is"
        yield Reason("store_path", what, "not set", store.place(COMMIT_LOG), own)


def other_store(store: StoppedStore) -> Iterator[Reason]:
    """Yields a broker.conf that names another store than the one that was judged; links are followed.

    Mirrors MessageStoreConfig#getStorePathRootDir (4.5.1 to 5.5.0).
    """
    named = store.conf.text(_ROOT, "")
    is_relative = not named.startswith("/")
    if not named or (not is_relative and outputs.resolved(named) == outputs.resolved(store.root)):
        return
    if is_relative:
        what = "a path relative to where it is started"
    else:
        what = "which does not exist" if local_status.status_of(named) is None else "which is another store"
    yield Reason(
        "store_path",
        f"the broker looks at {_ROOT}={named}, {what}; {store.root} was judged",
        found=named,
        expected=store.root,
        cure=f"set {_ROOT}={as_written(store.root)} in broker.conf and the paths of its log with it; for a copy of the "
        f"store, give {command('--set', f'{_ROOT}={store.root}')}",
    )


def log_elsewhere(store: StoppedStore) -> Iterator[Reason]:
    """Yields directories of the log that are not there, or hold none of it.

    Mirrors MappedFileQueue#load, MultiPathMappedFileQueue#load and the constructor of CommitLog (4.9.8 to 5.5.0).
    """
    if store.conf.flag("enableDLegerCommitLog", default=False) or any(other_store(store)):
        return
    several = "," in store.conf.text(_LOG, "")
    for setting in (_LOG, _READ_ONLY) if several else (_LOG,):
        paths = store.conf.paths(setting)
        for path in paths:
            status = local_status.status_of(path)
            relative = not path.startswith("/")
            absent = status is None or not status.is_directory or relative
            if not absent and _holds_segments(path):
                continue
            partly = not absent and (len(paths) > 1 or setting == _READ_ONLY) and bool(store.log.files)
            own, mount = _own_log_apart(store, path), command("mount", "--", path)
            if not absent and not partly and not own:
                continue  # a log without a segment: see ``log_missing``
            if relative:
                found = "relative"
                what = f"'{path}', a path relative to where the broker is started: elsewhere it finds nothing there"
                cure = f"write {setting} with whole paths, without blanks after its commas"
            else:
                found, which = ("absent", "does not exist") if absent else ("empty", "holds no segment")
                what = f"{path}, which {which}: the broker serves nothing of it"
                what += f"; {own} holds segments" if own else ""
                cure = f"{mount}, or make the directory if it is new"
                if own and len(paths) == 1:
                    cure = f"set {setting}={as_written(own)} in broker.conf, or {mount}"
            yield Reason("store_path", f"{setting} names {what}", found, "segments", cure, unsafe=not partly)
            if absent:
                return
    given = store.conf.given
    unread = paths_unread_by_broker(
        replace(
            StoreLayout(),
            store_path_commit_log=given.get(_LOG, ""),
            read_only_commit_log_store_paths=given.get(_READ_ONLY, ""),
        )
    )
    if unread:
        yield Reason(
            "store_path",
            unread,
            found=given.get(_LOG, ""),
            expected="a comma",
            cure=f"set {_LOG}={as_written(given.get(_LOG) or store.place(COMMIT_LOG))}, in broker.conf",
        )


def log_of_group(store: StoppedStore) -> Iterator[Reason]:
    """Yields settings that name a group's log where the store has none of it: the broker begins an empty one; and those
    that name one as a plain log, over which the broker writes from offset 0 on.

    Mirrors the constructor of DLedgerCommitLog (4.9.8 to 5.5.0), which goes on after the segments of ``commitlog/``.
    """
    if not store.conf.flag("enableDLegerCommitLog", default=False):
        if store.log.of_group and store.conf.from_file:
            yield Reason(
                "store_path",
                f"{store.log.directories[0]} holds the log of a DLedger group, and enableDLegerCommitLog is not true: "
                "the broker deletes the queues, and writes over the log from offset 0 on",
                found="entries of DLedger",
                expected="enableDLegerCommitLog=true",
                cure="set enableDLegerCommitLog=true in broker.conf",
            )
        return
    if any(other_store(store)):
        return
    if not (store.log.of_group and store.log.files):
        yield Reason(
            "store_path",
            "enableDLegerCommitLog=true, and the store has no log of a DLedger group: the broker begins an empty one"
            + (f" after the {len(store.log.files)} segments of a plain log" if store.log.files else ""),
            found="no dledger-ID/data",
            expected=f"dledger-{store.conf.text('dLegerSelfId', 'ID')}/data",
            cure="set enableDLegerCommitLog=false in broker.conf, or put the group's log in place",
        )


def _own_log_apart(store: StoppedStore, path: str) -> str | None:
    """Returns the store's own directory of a log if it is another than ``path`` and holds segments."""
    own = store.place(COMMIT_LOG)
    return own if outputs.resolved(own) != outputs.resolved(path) and _holds_segments(own) else None


def _holds_segments(directory: str) -> bool:
    return any(is_file_name(status.name) for status in local_status.statuses_in(directory))
