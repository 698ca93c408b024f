"""Rules on broker.conf: where the broker will look, settings that it does not take, and records that end its log.

=================================================  ==============================================================
setting                                            without it
=================================================  ==============================================================
``storePathRootDir``                               ``~/store`` of the broker's user: not judged
``storePathCommitLog``, several paths with commas  ``commitlog/`` below it
``readOnlyCommitLogStorePaths``                    none; read only where ``storePathCommitLog`` has a comma
``enableDLegerCommitLog``                          no group: its log is in ``dledger-<dLegerSelfId>/``
=================================================  ==============================================================

No broker has a setting for the place of its queues or index: it ignores ``storePathConsumeQueue`` and
``storePathIndex`` (StorePathConfigHelper, 4.5.1 to 5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.contract.report import command
from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import StoppedStore
from storeformat.javacompat import parse_int
from storeformat.javaproperties import as_written
from storeformat.storage import files, outputs
from storeformat.store.layout import COMMIT_LOG, is_file_name
from storeformat.store.segment_files import paths_unread_by_broker
from storeformat.store.setting_names import MOVES
from storeformat.store.settings import Settings

_ROOT, _LOG, _READ_ONLY = "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"
PLUG_IN, TIERED = "messageStorePlugIn", "TieredMessageStore"
_CHOICES = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
}
"""Settings whose setters take these words alone, the first by default (MessageStoreConfig#setBrokerRole)."""


def paths_not_taken(store: StoppedStore) -> Iterator[Reason]:
    """Empty paths, and those that a broker before 4.9.2 reads otherwise (MessageStoreConfig's constructor and
    #getStorePathCommitLog, 4.6.1 to 5.5.1).
    """
    own = f"{_LOG}={as_written(store.place(COMMIT_LOG))}"
    for name, right in ((_ROOT, f"{_ROOT}={as_written(store.root)}"), (_LOG, own)):
        if not store.settings.given.get(name, "x").strip(" ,"):
            yield Reason.of("store_path.empty", name=name, right=right)
    text = store.settings.text(_LOG)
    if store.rules.reads_several_paths or store.settings.flag("enableDLegerCommitLog"):
        return
    if "," in text:
        yield Reason.of("store_path.several", text=text)
    elif _ROOT in store.settings.given and _LOG not in store.settings.given:
        yield Reason.of("store_path.home", right=own)


def other_store(store: StoppedStore) -> Iterator[Reason]:
    """A broker.conf that names another store than the judged one; links are followed."""
    named = store.settings.text(_ROOT)
    is_relative = not named.startswith("/")
    if not named or (not is_relative and outputs.resolved(named) == outputs.resolved(store.root)):
        return
    if is_relative:
        which = "a path relative to where it is started"
    else:
        which = "which does not exist" if files.status_of(named) is None else "which is another store"
    right, option = f"{_ROOT}={as_written(store.root)}", command("--set", f"{_ROOT}={store.root}")
    yield Reason.of("store_path.other", named=named, which=which, root=store.root, right=right, option=option)


def log_elsewhere(store: StoppedStore) -> Iterator[Reason]:
    """Directories of the log that are not there, or hold none of it: the broker starts, and serves nothing of it
    (MappedFileQueue#load, MultiPathMappedFileQueue#load, 4.9.8 to 5.5.0).
    """
    if store.settings.flag("enableDLegerCommitLog") or any(other_store(store)):
        return
    several = "," in store.settings.text(_LOG)
    for setting in (_LOG, _READ_ONLY) if several else (_LOG,):
        paths = store.settings.paths(setting)
        for path in paths:
            status = files.status_of(path)
            relative = not path.startswith("/")
            absent = status is None or not status.is_directory or relative
            if not absent and _holds_segments(path):
                continue
            partly = not absent and (len(paths) > 1 or setting == _READ_ONLY) and bool(store.log.files)
            own = _own_log_apart(store, path)
            if not absent and not partly and not own:
                continue  # a log without a segment: see ``log_missing``
            right = f"set {setting}={as_written(own)} in broker.conf, or " if own and len(paths) == 1 else ""
            new = "" if right else ", or make the directory if it is new"
            yield Reason.of(
                "store_path.relative" if relative else "store_path.log",
                unsafe=not partly,
                setting=setting,
                path=path,
                which="does not exist" if absent else "holds no segment",
                instead=f"; {own} holds segments" if own else "",
                cure=f"{right}{command('mount', '--', path)}{new}",
            )
            if absent:
                return
    own, read_only = (store.settings.given.get(name, "") for name in (_LOG, _READ_ONLY))
    if unread := paths_unread_by_broker(Settings({_LOG: own, _READ_ONLY: read_only})):
        right = f"{_LOG}={as_written(own or store.place(COMMIT_LOG))},"
        yield Reason.of("store_path.comma", unread=unread, right=right)


def log_of_group(store: StoppedStore) -> Iterator[Reason]:
    """A DLedger group's log that is named as a plain one, or a plain one as a group's (constructor of DLedgerCommitLog,
    4.9.8 to 5.5.0, which goes on after the segments of ``commitlog/``).
    """
    if not store.settings.flag("enableDLegerCommitLog"):
        if store.log.of_group and store.settings.from_file:
            yield Reason.of("store_path.group_as_plain", directory=store.log.directories[0])
    elif not any(other_store(store)) and not (store.log.of_group and store.log.files):
        after = f" after the {len(store.log.files)} segments of a plain log" if store.log.files else ""
        yield Reason.of("store_path.no_group", after=after)


def _own_log_apart(store: StoppedStore, path: str) -> str | None:
    """The store's own directory of a log if it is another than ``path`` and holds segments."""
    own = store.place(COMMIT_LOG)
    return own if outputs.resolved(own) != outputs.resolved(path) and _holds_segments(own) else None


def _holds_segments(directory: str) -> bool:
    return any(is_file_name(status.name) for status in files.statuses_in(directory))


def not_judged(store: StoppedStore) -> Iterator[Reason]:
    """Settings that are on and move messages, or other state, to where no rule looks: then the answer is not known."""
    on = {name for name in MOVES if store.settings.text(name).lower() not in ("", "false", "default")}
    plug_in = store.settings.text(PLUG_IN)
    if plug_in and TIERED not in plug_in:
        yield Reason.of("not_judged.messages", names=f"{PLUG_IN}={plug_in}")
    for kind in ("messages", "state"):
        if names := sorted(f"{name}={store.settings.text(name)}" for name in on if MOVES[name] == kind):
            yield Reason.of(f"not_judged.{kind}", names=", ".join(names))


def settings_not_taken(store: StoppedStore) -> Iterator[Reason]:
    """Values that the broker passes over; the other rules judge what it takes instead (MixAll#properties2Object and
    MessageStoreConfig#setBrokerRole, 4.9.8 to 5.5.0).
    """
    settings = store.settings
    for name, text in settings.not_taken():
        whole = text.strip() if parse_int(text.strip()) is not None else "a whole number"
        yield Reason.of("setting_not_taken.number", name=name, text=text, whole=whole)
    for name, choices in _CHOICES.items():
        text = settings.given.get(name, choices[0])
        if (text.strip() if store.rules.trims_settings else text) not in choices:
            unsafe = name == "brokerRole" and text.strip() != choices[0]
            yield Reason.of(
                "setting_not_taken.word", unsafe=unsafe, name=name, text=text, taken=choices[0],
                choices=", ".join(choices),
            )  # fmt: skip


def records_not_taken(store: StoppedStore) -> Iterator[Reason]:
    """Sound records at which recovery ends the log (CommitLog#checkMessageAndReturnSize, 4.9.8 to 5.5.0).

    ==========================================  ============================  ===============
    records                                     where                         releases
    ==========================================  ============================  ===============
    without a property CRC                      ``forceVerifyPropCRC=true``,  5.2.0 and later
                                                ``checkCRCOnRecover`` is on
    with properties, and without DUP_INFO       ``duplicationEnable=true``    5.0.0 and later
    with a topic length of two bytes            always                        up to 5.0.0
    ==========================================  ============================  ===============
    """
    settings, rules, tail = store.settings, store.rules, store.tail
    verifies = settings.flag("forceVerifyPropCRC") and settings.flag("checkCRCOnRecover")
    kinds = {
        "long topic": not rules.reads_long_topics,
        "no DUP_INFO": rules.wants_dup_info and settings.flag("duplicationEnable"),
        "no property CRC": rules.wants_property_crc and verifies,
    }
    for trait, counts in kinds.items():
        if counts and trait in tail.firsts and not store.log.of_group:
            first = tail.firsts[trait]
            lost = int((tail.offsets >= first).sum())
            yield Reason.of(f"log_cut.{trait.replace(' ', '_')}", first=first, lost=lost)
