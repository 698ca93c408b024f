"""Rules on the files of ``config/``: torn, empty and lost ones, and the storeType against what is in databases."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.contract.commands import quoted
from jobs.preflight.reason import Reason, first_of
from jobs.preflight.stopped_store import StoppedStore
from storeformat.store.config.config_files import CONSUMER_OFFSETS, LMQ_OFFSETS, ConfigFile, FileState
from storeformat.store.config.topic_config import MADE_BY_BROKER
from storeformat.store.queue_places import SEPARATE
from storeformat.store.recovery import recovered_from

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


def _always_there(store: StoppedStore) -> tuple[str, ...]:
    """Returns what every broker with these settings writes within seconds of its first start."""
    return _TOPICS, store.offsets_file.name, _GROUPS


def config_is_absent(store: StoppedStore) -> bool:
    """Whether every file that each broker writes is missing: then no other file of ``config/`` needs a reason."""
    return not store.config_in_databases and all(store.configs[name].is_absent for name in _always_there(store))


def config_files(store: StoppedStore) -> Iterator[Reason]:
    """Yields files of ``config/`` that a broker does not take as they are: it reads ``.bak``, nothing, or does not
    start.

    Mirrors ConfigManager#load and #loadBak (4.9.8 to 5.5.0) and BrokerController#initialize, which ends where one of
    them returns false.
    """
    always, is_absent = _always_there(store), config_is_absent(store)
    if is_absent and store.log.segments:
        yield Reason(
            "config_absent",
            f"{store.place('config')} holds no topics, groups and offsets: the broker starts with none, so "
            "that no client finds its topics, and every group starts over",
            found="none of " + ", ".join(always),
            cure="put the broker's config/ in place, or a replica's; rebuild --topics-json makes topics.json",
        )
    for name, config in store.configs.items():
        if name in _SINCE_5_0 and not store.rules.reads_batches_and_timers:
            continue
        may_be_absent = is_absent or name not in always
        if not (config.is_absent and may_be_absent) and not (store.config_in_databases and name in always):
            yield from _judged(store, config)


def _judged(store: StoppedStore, config: ConfigFile) -> Iterator[Reason]:
    main, backup = config.main, config.backup
    if config.ends_the_start:
        yield Reason(
            "config_torn",
            f"{config.name} is {main.content.value} and its .bak torn: the broker does not start",
            found=f"{main.content.value}, .bak torn ({backup.why})",
            expected="JSON",
            cure=f"put a sound copy in place, or move {quoted(backup.path)} away: then {WITHOUT[config.name]}",
        )
    elif config.taken is backup:
        age = max(main.modified_ms - backup.modified_ms, 0) if main.modified_ms else 0
        yield Reason(
            "config_backup",
            f"{config.name} is {main.content.value}: the broker takes its .bak"
            + (f", {age // 1000} s older" if age >= 1000 else ""),
            found=main.content.value,
            expected="JSON",
            cure=f"nothing, if {quoted(backup.path)} is as new as what was lost",
            unsafe=False,
        )
    elif config.taken is None:
        why = f" ({main.why})" if main.why else ""
        yield _nothing(store, config, f"{main.content.value}{why}, and its .bak {backup.content.value}")
    elif config.name == _TOPICS and not config.value:
        yield _nothing(store, config, "without a topic, and a broker has some from its first start on")


def _nothing(store: StoppedStore, config: ConfigFile, found: str) -> Reason:
    cure = f"put a sound {config.name} into {quoted(store.place('config'))}: an older copy, or a replica's"
    if config.name == _TOPICS:
        cure += "; rebuild --topics-json makes one from the log"
    if config.name in (CONSUMER_OFFSETS, LMQ_OFFSETS):
        cure += "; rebuild --only consumer-offsets makes one of what is left"
    return Reason(
        "config_lost",
        f"{config.name} is {found}: the broker starts without it; {WITHOUT[config.name]}",
        found=found,
        expected="JSON",
        cure=cure,
        unsafe=config.name not in _HARMLESS and bool(store.log.segments),
    )


def queue_types(store: StoppedStore) -> Iterator[Reason]:
    """Topics whose queues are of another type than topics.json says, where a topic that it lacks has ordinary ones.

    Mirrors ConsumeQueueStore#queueTypeShouldBe (5.0.0 to 5.5.0), which ends the start.
    """
    if store.config_in_databases or not store.rules.reads_batches_and_timers:
        return
    batch = {topic for topic, queues in (store.configs[_TOPICS].value or {}).items() if queues.batch}
    wrong = sorted({topic for (topic, _), queue in store.queues.items() if queue.batch != (topic in batch)})
    if wrong:
        yield Reason(
            "queue_type",
            f"{len(wrong)} topics have queues of another type than topics.json says, BatchCQ or ordinary ones "
            f"({first_of(wrong)}): the broker does not start",
            found=wrong,
            expected="the types of topics.json",
            cure=f"put a sound topics.json into {quoted(store.place('config'))}: an older copy, or a replica's",
        )


def topics_not_configured(store: StoppedStore) -> Iterator[Reason]:
    """Yields topics that have queues and no configuration: their messages are kept and reach no client.

    Mirrors TopicConfigManager#load and PullMessageProcessor, which answers TOPIC_NOT_EXIST (4.9.8 to 5.5.0).
    """
    topics = store.configs[_TOPICS].value
    if not topics or store.config_in_databases:  # without a topic see ``config_files``
        return
    lacking = sorted({topic for topic, _ in store.queues if topic not in topics and not _is_the_brokers(topic)})
    if lacking:
        yield Reason(
            "topics_not_configured",
            f"{len(lacking)} topics have queues and are not in topics.json: {first_of(lacking)}; no client finds them",
            found=lacking,
            cure="rebuild --topics-json adds them; publish puts the file in place",
            unsafe=False,
        )


def configured_topics(store: StoppedStore) -> list[str]:
    """Returns the topics of topics.json that a broker does not make by itself."""
    own = {store.conf.text(name, "") for name in ("brokerName", "brokerClusterName")} | {"DefaultCluster"}
    topics = store.configs[_TOPICS].value or {}
    return sorted(
        topic
        for topic in topics
        if topic not in own and not topic.endswith("_REPLY_TOPIC") and not _is_the_brokers(topic)
    )


def _is_the_brokers(topic: str) -> bool:
    return topic in MADE_BY_BROKER or topic.startswith(("rmq_sys_", "RMQ_SYS_", "%LMQ%"))


def queues_not_read(store: StoppedStore) -> Iterator[Reason]:
    """Yields queues with messages beyond the ``readQueueNums`` of their topic, unless every group that reads the topic
    is at their ends: so they are after the topic was made smaller, and not with an older topics.json.

    Mirrors PullMessageProcessor#processRequest, which answers "queueId is illegal" (4.9.8 to 5.5.0).
    """
    topics = store.configs[_TOPICS].value
    if topics is None or store.config_in_databases:
        return
    offsets = store.offsets_file.value or {}
    unread, messages = [], 0
    for (topic, queue_id), queue in sorted(store.queues.items()):
        if topic not in topics or queue_id < topics[topic].read or _is_the_brokers(topic) or queue.end <= queue.begin:
            continue
        committed = [own.get(queue_id, 0) for (name, _), own in offsets.items() if name == topic]
        if not committed or min(committed) < queue.end:
            unread.append(f"{topic}:{queue_id}")
            messages += queue.end - queue.begin
    if unread:
        yield Reason(
            "queues_not_read",
            f"{len(unread)} queues are beyond the readQueueNums of their topics in topics.json: {first_of(unread)}; "
            f"no client reads their {messages:,} messages",
            found=unread[:1000],
            expected=0,
            cure="rebuild --topics-json raises readQueueNums; publish puts the file in place",
        )


def queues_fewer_than_configured(store: StoppedStore) -> Iterator[Reason]:
    """Yields topics with messages in some queues and no files of others that topics.json has.

    Mirrors DefaultMessageStore#findConsumeQueue (4.9.8) and ConsumeQueueStore#findOrCreateConsumeQueue (5.0.0 to
    5.5.0): the first message makes a queue that begins at 0. A queue that never had a message looks the same, so this
    alone is not a loss.
    """
    topics = store.configs[_TOPICS].value
    if topics is None or store.config_in_databases:
        return
    lacking = []
    for topic, queues in sorted(topics.items()):
        there = {queue_id for name, queue_id in store.queues if name == topic}
        if there and not _is_the_brokers(topic) and queues.write <= 1024:
            missing = sorted(set(range(queues.write)) - there)
            lacking += [f"{topic}:{queue_id}" for queue_id in missing]
    if lacking:
        yield Reason(
            "queues_fewer_than_configured",
            f"{len(lacking)} queues of topics with messages have no files: {first_of(lacking)}; if they had messages, "
            "those are not served and the queues begin again at 0",
            found=lacking[:1000],
            cure="verify compares all queues with the log",
            unsafe=False,
        )


def store_type(store: StoppedStore) -> Iterator[Reason]:
    """Yields a storeType that does not go with the queues that are there.

    Mirrors MessageStoreConfig#isEnableRocksDBStore and BrokerController#initializeMessageStore (5.2.0 to 5.5.0): with
    defaultRocksDB queues, topics, groups and offsets are read from databases alone, else from files alone; and
    RocksDBConsumeQueueStore of 5.5.0, which does not start where the other path of useSeparateStorePathForRocksdbCQ
    holds a database.
    """
    databases = store.rocksdb
    has_database = databases.queues or databases.queues_apart
    found = [*(["consume queues"] if has_database else []), *databases.configuration]
    in_json = any(store.configs[name].main.content is FileState.SOUND for name in _always_there(store))
    files_there = any(queue.end_offset >= 0 for queue in store.queues.values())
    if store.queues_in_rocksdb:
        if store.log.segments and not has_database:
            yield _no_database(store)
        apart = store.conf.flag(SEPARATE, default=False)
        if databases.queues if apart else databases.queues_apart:
            setting = f"{SEPARATE}={str(not apart).lower()}"
            yield Reason(
                "store_type",
                "queues are in the database at the other path: with these settings the broker does not start",
                found="consumequeue/CURRENT" if apart else "consumequeue_rocksdb/",
                expected=setting,
                cure=f"set {setting} in broker.conf",
            )
        elif has_database:
            yield Reason(
                "rocksdb_not_judged",
                "queues, topics and offsets are in RocksDB: whether they fit the log is not judged here",
                found=found,
                cure="verify compares the queues with the log, query lag shows committed offsets beside them",
                unsafe=False,
            )
        return
    known = store.rules.knows_rocksdb
    why = "storeType says files" if known else "this release knows files alone"
    if (has_database and not files_there) or (databases.configuration and not in_json):
        yield Reason(
            "store_type",
            f"{', '.join(found)} are in RocksDB, but {why}: the broker would see none of it, and make "
            "queues from the last ten segments at most (5.4.0 and later; 5.3.2 and 5.3.3 from all, before not at all)",
            found=store.conf.text("storeType", "default"),
            expected="defaultRocksDB",
            cure="set storeType=defaultRocksDB in broker.conf; or, to change to files: rebuild and publish first"
            if known
            else "start 5.2.0 or later; or, to change to files: rebuild --queue-store file, and publish",
        )


def _no_database(store: StoppedStore) -> Reason:
    segments, files_there = store.log.segments, len(store.queues)
    begin, again = recovered_from(segments, store.rules, store.conf), store.rules.restores_databases
    return Reason(
        "store_type",
        "storeType is defaultRocksDB and the database of queues is empty, or not there: the broker "
        + (f"makes them from offset {begin} on" if again else "makes none (5.3.2 and 5.3.3: from all of the log)")
        + (f"; the {files_there} queues in files are not looked at" if files_there else ""),
        found="no queues",
        expected="the queues of the log",
        cure="rebuild --queue-store rocksdb, then publish; put the databases of config/ back, if they are lost",
        unsafe=begin > segments[0].base or not again,
    )
