"""Rules on the files and databases of ``config/``: torn, empty and lost ones; the storeType against what is there.

==================================  ===================================================================================
settings                            databases of ``config/``
==================================  ===================================================================================
``storeType=defaultRocksDB``        ``topics/``, ``subscriptionGroups/``, ``consumerOffsets/`` (5.2.0 and later)
``useSingleRocksDBForAllConfigs``   ``metadata/``, which takes those three in (5.4.0 and later)
``configManagerVersion=v2``         ``rdb/``, whatever the storeType (5.3.2 and later)
==================================  ===================================================================================

From 5.3.2 on a start replaces the content of the first three databases with a file of ``config/`` whose data version is
higher.

Rules on broker.conf: where the broker will look, settings that it does not take, and records that end its log.

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

import json
from collections.abc import Iterator
from contextlib import suppress

from jobs.contract.report import command, quoted
from jobs.preflight.stopped_store import Reason, StoppedStore, batch_topics_of, first_of
from storeformat.errors import MissingInput
from storeformat.javacompat import parse_int
from storeformat.storage import files, locations, rocksdb
from storeformat.store.broker_rules import MOVES, as_written
from storeformat.store.config_files import CONSUMER_OFFSETS, LMQ_OFFSETS, MADE_BY_BROKER, ConfigFile, FileState
from storeformat.store.layout import BACKUP, COMMIT_LOG, REPAIRED_LOG, is_file_name
from storeformat.store.recovery import recovered_from
from storeformat.store.segment_files import commit_log_directories, paths_unread_by_broker
from storeformat.store.settings import SEPARATE, Settings

_TOPICS, _GROUPS, _DELAYS = "topics.json", "subscriptionGroup.json", "delayOffset.json"
WITHOUT = {
    _TOPICS: "no client finds its topics, their messages are not served",
    **dict.fromkeys(
        (CONSUMER_OFFSETS, LMQ_OFFSETS),
        "every group starts over: it reads messages again, or skips those it has not read",
    ),
    _GROUPS: "groups have to be created again; their retry limits and switches are lost",
    _DELAYS: "every delayed message that is still in the log is delivered again",
    "consumerFilter.json": "SQL92 filters are unknown until their consumers are back",
    "consumerOrderInfo.json": "what ordered POP consumers hold is delivered again",
    "topicQueueMapping.json": "static topics are ordinary ones, and their clients find other queues",
    "timermetrics": "counts of waiting timer messages begin at 0",
}
_HARMLESS = frozenset({"consumerFilter.json", "timermetrics", _DELAYS})
"""Files without which a start loses and repeats nothing; for those of delays see ``delay_offsets_behind``."""
_SINCE_5_0 = frozenset({"topicQueueMapping.json", "consumerOrderInfo.json", "timermetrics"})
_OPENED = ("kvStore", "rocksdbstore", "config/users", "config/acls")  # POP; index and timers; users and their rights
_DATABASES = {"topics": _TOPICS, "subscriptionGroups": _GROUPS, "consumerOffsets": CONSUMER_OFFSETS}
_SINGLE, _V2 = "metadata", "rdb"


# --------------------------------------------------------------------------------------------------------------- files
def _always_there(store: StoppedStore) -> tuple[str, ...]:
    """What every broker with these settings writes within seconds of its first start."""
    return _TOPICS, store.offsets_file.name, _GROUPS


def config_is_absent(store: StoppedStore) -> bool:
    """Whether every file that each broker writes is missing: then no other file of ``config/`` needs a reason."""
    return not store.config_in_databases and all(store.configs[name].is_absent for name in _always_there(store))


def config_files(store: StoppedStore) -> Iterator[Reason]:
    """Files of ``config/`` that a broker does not take as they are: it reads ``.bak``, nothing, or does not start
    (ConfigManager#load and #loadBak, 4.9.8 to 5.5.0; BrokerController#initialize ends where one returns false).
    """
    always, is_absent = _always_there(store), config_is_absent(store)
    if is_absent and store.log.files:
        yield Reason.of("config_absent", directory=store.place("config"))
    for name, config in store.configs.items():
        if name in _SINCE_5_0 and not store.rules.reads_batches_and_timers:
            continue
        may_be_absent = is_absent or name not in always
        if not (config.is_absent and may_be_absent) and not (store.config_in_databases and name in always):
            yield from _judged(store, config)


def _judged(store: StoppedStore, config: ConfigFile) -> Iterator[Reason]:
    main, backup, without = config.main, config.backup, WITHOUT[config.name]
    part = {_TOPICS: "topics", store.offsets_file.name: "offsets"}.get(config.name, "")
    if config.ends_the_start:
        yield Reason.of(
            "config_torn", name=config.name, state=main.content.value, backup=quoted(backup.path), without=without,
            part=part,
        )  # fmt: skip
    elif config.taken is backup:
        age = max(main.modified_ms - backup.modified_ms, 0) if main.modified_ms else 0
        older = f", {age // 1000} s older" if age >= 1000 else ""
        state = main.content.value
        yield Reason.of("config_backup", name=config.name, state=state, older=older, backup=quoted(backup.path))
    elif config.taken is None or (config.name == _TOPICS and not config.value):
        why = f" ({main.why})" if main.why else ""
        state = "without a topic, and a broker has some from its first start on"
        if config.taken is None:
            state = f"{main.content.value}{why}, and its .bak {backup.content.value}"
        no_group = config.name == _GROUPS and config.is_absent and not store.offsets_file.value  # producers alone
        by_hand = {
            _TOPICS: "; rebuild --topics-json makes one from the log",
            store.offsets_file.name: "; rebuild --only consumer-offsets makes it from what is left; mqadmin"
            " resetOffsetByTime sets other groups",
        }
        yield Reason.of(
            "config_lost.file",
            unsafe=config.name not in _HARMLESS and bool(store.log.files) and not no_group,
            name=config.name,
            state=state,
            without=without,
            directory=quoted(store.place("config")),
            made=by_hand.get(config.name, ""),
            part=part,
        )


def queue_types(store: StoppedStore) -> Iterator[Reason]:
    """Topics whose queues are of another type than topics.json says, where a topic that it lacks has ordinary ones
    (ConsumeQueueStore#queueTypeShouldBe, 5.0.0 to 5.5.0, which ends the start).
    """
    if store.config_in_databases or not store.rules.reads_batches_and_timers:
        return
    batch = batch_topics_of(store)
    wrong = sorted({topic for (topic, _), queue in store.queues.items() if queue.batch != (topic in batch)})
    if wrong:
        yield Reason.of("queue_type", count=len(wrong), first=first_of(wrong), directory=quoted(store.place("config")))


def topics_not_configured(store: StoppedStore) -> Iterator[Reason]:
    """Topics that have queues and no configuration: their messages are kept and reach no client (TopicConfigManager
    #load; PullMessageProcessor answers TOPIC_NOT_EXIST, 4.9.8 to 5.5.0).
    """
    topics = store.configs[_TOPICS].value
    if not topics or store.config_in_databases:  # without a topic see ``config_files``
        return
    lacking = sorted({topic for topic, _ in store.queues if topic not in topics and not is_the_brokers(topic)})
    if lacking:
        yield Reason.of("topics_not_configured", count=len(lacking), first=first_of(lacking))


def configured_topics(store: StoppedStore) -> list[str]:
    """The topics of topics.json that a broker does not make by itself."""
    own = {store.settings.text(name) for name in ("brokerName", "brokerClusterName")} | {"DefaultCluster"}
    topics = store.configs[_TOPICS].value or {}
    return sorted(
        topic
        for topic in topics
        if topic not in own and not topic.endswith("_REPLY_TOPIC") and not is_the_brokers(topic)
    )


def is_the_brokers(topic: str) -> bool:
    """Whether a broker makes the topic by itself, and never deletes it."""
    return topic in MADE_BY_BROKER or topic.startswith(("rmq_sys_", "RMQ_SYS_", "%LMQ%"))


def queues_not_read(store: StoppedStore) -> Iterator[Reason]:
    """Queues with messages beyond the ``readQueueNums`` of their topic, unless every group that reads the topic is at
    their ends: so they are after the topic was made smaller, and not with an older topics.json
    (PullMessageProcessor#processRequest answers "queueId is illegal", 4.9.8 to 5.5.0).
    """
    topics = store.configs[_TOPICS].value
    if topics is None or store.config_in_databases:
        return
    committed: dict[str, list[dict[int, int]]] = {}
    for (topic, _), own in (store.offsets_file.value or {}).items():
        committed.setdefault(topic, []).append(own)
    unread, messages = [], 0
    for (topic, queue_id), queue in sorted(store.queues.items()):
        if topic not in topics or queue_id < topics[topic].read or is_the_brokers(topic) or queue.end <= queue.begin:
            continue
        if min((own.get(queue_id, 0) for own in committed.get(topic, ())), default=0) < queue.end:
            unread.append(f"{topic}:{queue_id}")
            messages += queue.end - queue.begin
    if unread:
        yield Reason.of("queues_not_read", count=len(unread), first=first_of(unread), messages=messages)


def queues_fewer_than_configured(store: StoppedStore) -> Iterator[Reason]:
    """Topics with messages in some queues and no files of others that topics.json has: a queue that never had a message
    looks the same (ConsumeQueueStore#findOrCreateConsumeQueue, 5.0.0 to 5.5.0, makes it with begin 0).
    """
    topics = store.configs[_TOPICS].value
    if topics is None or store.config_in_databases:
        return
    there: dict[str, set[int]] = {}
    for topic, queue_id in store.queues:
        there.setdefault(topic, set()).add(queue_id)
    lacking = []
    for topic, queues in sorted(topics.items()):
        if topic in there and not is_the_brokers(topic) and queues.write <= 1024:
            lacking += [f"{topic}:{queue_id}" for queue_id in sorted(set(range(queues.write)) - there[topic])]
    if lacking:
        yield Reason.of("queues_fewer_than_configured", count=len(lacking), first=first_of(lacking))


# ----------------------------------------------------------------------------------------------------------- databases
def databases_not_opened(store: StoppedStore) -> Iterator[Reason]:
    """Databases of RocksDB whose CURRENT does not name a MANIFEST that is there: the broker does not start."""
    of_config = [f"config/{name}" for name in store.rocksdb.made] if store.config_in_databases else []
    for name in (*_OPENED, *of_config):
        path = store.place(name)
        current = locations.join(path, rocksdb.CURRENT)
        if files.size_of(current) is None:
            continue
        named = files.read_bytes(current, 4096).decode("utf-8", "replace")
        if not (named.endswith("\n") and files.size_of(locations.join(path, named.strip()))):
            yield Reason.of("database_not_opened", current=current, aside=store.set_aside(path))


def config_databases_lost(store: StoppedStore) -> Iterator[Reason]:
    """Databases of the configuration that are not there, beside a log: the broker makes empty ones.

    Mirrors RocksDBTopicConfigManager#load, RocksDBSubscriptionGroupManager#load, RocksDBConsumerOffsetManager#load and
    their ``merge`` (5.2.0 to 5.5.0), TopicConfigManagerV2#load (5.3.2 to 5.5.0).
    """
    if not store.config_in_databases or not store.log.files:
        return
    there = store.rocksdb.made
    if store.settings.text("configManagerVersion") == "v2":
        if _V2 not in there:
            yield _lost(store, _V2, "the broker starts without topics, groups and offsets, and reads no JSON")
        return
    if _SINGLE in there and store.settings.flag("useSingleRocksDBForAllConfigs"):
        return
    sound = {name for name, file in store.configs.items() if file.main.content is FileState.SOUND}
    for name, file in _DATABASES.items():
        if name in there:
            continue
        if store.rules.restores_databases and file in sound:
            yield Reason.of("config_from_json", name=name, file=file)
        else:
            yield _lost(store, name, WITHOUT[file])


def _lost(store: StoppedStore, name: str, then: str) -> Reason:
    made = "; rebuild --only consumer-offsets makes a file that 5.3.2 and later take in"
    return Reason.of(
        "config_lost.database",
        name=name,
        then=then,
        path=quoted(store.place("config", name)),
        made=made if name == "consumerOffsets" else "",
    )


def config_json_torn(store: StoppedStore) -> Iterator[Reason]:
    """Files that are torn beside their databases: the start reads their data version, and ends there (``merge`` of the
    managers in RocksDB with #loadDataVersion, which looks at no ``.bak``, 5.3.2 to 5.5.0).
    """
    if not store.queues_in_rocksdb or store.settings.text("configManagerVersion") == "v2":
        return
    for name, file in store.configs.items():
        if name in _DATABASES.values() and file.main.content is FileState.TORN:
            yield Reason.of("config_torn.beside", path=file.main.path, aside=store.set_aside(file.main.path))


def store_type(store: StoppedStore) -> Iterator[Reason]:
    """A storeType that does not go with the queues that are there.

    Mirrors MessageStoreConfig#isEnableRocksDBStore and BrokerController#initializeMessageStore (5.2.0 to 5.5.0): with
    defaultRocksDB queues, topics, groups and offsets are read from databases alone, else from files alone; and
    RocksDBConsumeQueueStore of 5.5.0, which does not start where the other path of useSeparateStorePathForRocksdbCQ
    holds a database.
    """
    databases = store.rocksdb
    has_database = databases.queues or databases.queues_apart
    if store.queues_in_rocksdb:
        if store.log.files and not has_database:
            yield _no_database(store)
        apart = store.settings.flag(SEPARATE)
        if databases.queues if apart else databases.queues_apart:
            yield Reason.of("store_type.apart", right=f"{SEPARATE}={str(not apart).lower()}")
        elif has_database:
            yield Reason.of("rocksdb_not_judged")
        return
    sound = any(store.configs[name].main.content is FileState.SOUND for name in _always_there(store))
    is_read = sound or store.config_in_databases
    files_there = any(queue.end_offset >= 0 for queue in store.queues.values())
    if (has_database and not files_there) or (databases.configuration and not is_read):
        found = [*(["consume queues"] if has_database else []), *databases.configuration]
        case = "files" if store.rules.knows_rocksdb else "older"
        if found == [_V2] and store.rules.takes_offsets_file:
            case = "second_form"
        yield Reason.of(f"store_type.{case}", found=", ".join(found))


def _no_database(store: StoppedStore) -> Reason:
    segments, files_there = store.log.segments, len(store.queues)
    begin, again = recovered_from(segments, store.rules, store.settings), store.rules.restores_databases
    then = f"makes them from offset {begin} on" if again else "makes none (5.3.2 and 5.3.3: from all of the log)"
    then += f"; the {files_there} queues in files are not looked at" if files_there else ""
    return Reason.of("store_type.no_database", unsafe=begin > segments[0].base or not again, then=then)


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
    if not named or (not is_relative and files.resolved(named) == files.resolved(store.root)):
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
    if (log := repaired_log(store.root, store.settings)) is not None:
        yield Reason.of("store_path.repaired", log=log, right=f"{_LOG}={as_written(log)}")
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


def repaired_log(root: str, settings: Settings) -> str | None:
    """The log that was repaired for the newest publish (``jobs.publish.swap``), if broker.conf does not name it."""
    logs = {}
    for entry in files.list_directory(locations.join(root, BACKUP)) or []:
        with suppress(MissingInput, LookupError, TypeError, ValueError):
            journal = json.loads(files.read_bytes(locations.join(entry.path, "journal.json")))
            if journal["state"] == "finished":
                logs[journal["sequence"]] = journal["log"]["directories"][0] if journal["kind"] == "publish" else ""
    log = logs[max(logs)] if logs else ""
    if not (locations.name_of(log).startswith(REPAIRED_LOG) and files.exists(log)):
        return None
    return None if files.resolved(log) in map(files.resolved, commit_log_directories(root, settings)) else log


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
    return own if files.resolved(own) != files.resolved(path) and _holds_segments(own) else None


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
            lost = int((tail.rows.offsets >= first).sum())
            yield Reason.of(f"log_cut.{trait.replace(' ', '_')}", first=first, lost=lost)
