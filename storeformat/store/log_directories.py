"""Directories of a store's log: its own folder, several paths, or the folder of a DLedger group.

=================================================  ==============================================================
setting                                            holds
=================================================  ==============================================================
``storePathCommitLog``, several paths with commas  segments, each new one in the next path
``readOnlyCommitLogStorePaths``                    segments that were written when they were not read-only
``storePathDLedgerCommitLog``                      entries, if not in ``dledger-<dLegerSelfId>/data``
=================================================  ==============================================================

Mirrors ``MultiPathMappedFileQueue#load`` and ``DLedgerCommitLog`` of rocketmq-all-4.9.8 to 5.5.0, except where these
lose messages silently: a missing path is an error here, and read-only paths are read (with a note) even if
``storePathCommitLog`` has no comma (constructor of ``CommitLog``), because queues and index still refer to them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from storeformat.errors import MissingInput, WrongSettings
from storeformat.log import dledger
from storeformat.log.dledger import Committed
from storeformat.log.segments import Segment
from storeformat.storage import files, locations
from storeformat.store.layout import COMMIT_LOG, StoreLayout

_SWITCH = "enableDLegerCommitLog"


def commit_log_directories(
    root: str, layout: StoreLayout, given: Collection[str] = (), named: Sequence[str] = ()
) -> list[str]:
    """Log directories by command line, settings, or the store itself, if no configured path exists (another machine's
    conf). ``given``: names of given settings; a group's folder counts unless they disable it.
    """
    if named:
        return [locations.absolute(path) for path in named]
    plain = _configured(layout.store_path_commit_log, layout.read_only_commit_log_store_paths)
    plain = plain or [locations.join(root, COMMIT_LOG)]
    if _SWITCH in given and not layout.enable_d_leger_commit_log:
        return plain
    entries = [path for path in _entry_directories(root, layout) if _holds_files(path)]
    return [path for path in plain if not entries or _holds_files(path)] + entries


def paths_unread_by_broker(layout: StoreLayout) -> str | None:
    """Note about a path that is read here, but not by a broker with these settings."""
    read_only = layout.read_only_commit_log_store_paths.strip()
    if not read_only or "," in layout.store_path_commit_log or not _configured(read_only):
        return None
    if layout.enable_d_leger_commit_log:
        return None
    return (
        f"a broker with these settings does not serve what lies in {read_only}: it looks at readOnlyCommitLogStorePaths"
        " only where storePathCommitLog has a comma (one at its end will do)"
    )


def group_directories(root: str, self_id: str = "") -> list[str]:
    """Folders of DLedger groups in a store root, or of one member."""
    prefix = dledger.GROUP_PREFIX + self_id
    names = sorted(entry.name for entry in files.list_directory(root) or [] if entry.is_directory)
    return [locations.join(root, name) for name in names if name == prefix or (not self_id and name.startswith(prefix))]


def groups_of(directories: Sequence[str]) -> list[str]:
    """Folders of the groups whose entries are in log directories."""
    return [locations.parent_of(path) for path in directories if dledger.is_of_group(path)]


def with_committed(segments: Sequence[Segment], groups: Sequence[str]) -> tuple[list[Segment], Committed]:
    """Segments with the committed index, and how far the log is committed; ``groups``: its possible group folders."""
    if not isinstance(segments[-1].framing, dledger.EntryFraming):
        return list(segments), Committed()
    index = dledger.committed_index(locations.join(groups[0], dledger.CHECKPOINT)) if len(groups) == 1 else None
    if index is None:
        note = "no checkpoint of the group was found: nothing shows how far its log is committed"
        return list(segments), Committed(None, note)
    framing = dledger.EntryFraming(index)
    known = [replace(item, framing=framing) if item.framing == dledger.ENTRIES else item for item in segments]
    return known, dledger.committed_end(known, index)


def _entry_directories(root: str, layout: StoreLayout) -> list[str]:
    configured = _configured(layout.store_path_d_ledger_commit_log)
    if configured:
        return configured
    there = [path for group in group_directories(root) if _holds_files(path := locations.join(group, dledger.DATA))]
    wanted = set(group_directories(root, layout.d_leger_self_id))
    found = [path for path in there if locations.parent_of(path) in wanted]
    if not found and (there or layout.enable_d_leger_commit_log):
        raise WrongSettings(
            "the settings name a DLedger member whose entries are not in the store",
            path=root,
            found=" and ".join(there) or "no dledger-ID/data",
            expected=f"{dledger.GROUP_PREFIX}{layout.d_leger_self_id or 'ID'}/{dledger.DATA}",
            advice=f"--set {_SWITCH}=false reads commitlog/ alone; --set dLegerSelfId=ID names another member",
        )
    if len(found) > 1:
        raise WrongSettings(
            "the store holds the logs of several members of a DLedger group",
            path=root,
            found=" and ".join(found),
            expected="one",
            advice="--set dLegerSelfId=ID chooses one",
        )
    return found


def _configured(*settings: str) -> list[str]:
    """Existing directories that settings name, each once. Raises MissingInput if only some exist."""
    paths = list(dict.fromkeys(path for setting in settings for path in setting.strip().split(",") if path))
    there = [path for path in paths if files.exists(path)]
    missing = [path for path in paths if path not in there]
    if there and missing:
        raise MissingInput(
            "a directory of the commit log is missing",
            path=missing[0],
            advice="mount it, or name those that hold the log with --commitlog PATH[,PATH]",
        )
    return [locations.absolute(path) for path in there]


def _holds_files(directory: str) -> bool:
    return any(not entry.is_directory for entry in files.list_directory(directory) or [])
