"""The answer for a store: all rules, in the order in which a start would meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from jobs.preflight import (
    config_databases,
    configuration,
    files_and_space,
    log_cuts,
    offsets,
    queues_and_log,
    retention,
    rocksdb_queues,
    store_paths,
    timers_and_epochs,
)
from jobs.preflight.reason import Answer, Reason, answer_of
from jobs.preflight.replicas import Replica, replicas_compared
from jobs.preflight.stopped_store import StoppedStore, read_stopped_store
from storeformat.errors import StoreFormatError
from storeformat.store.broker_conf import BrokerConf, read_broker_conf

Rule = Callable[[StoppedStore], Iterator[Reason]]
RULES: tuple[Rule, ...] = (
    store_paths.paths_not_taken,
    store_paths.other_store,
    store_paths.log_elsewhere,
    store_paths.log_of_group,
    files_and_space.store_in_use,
    files_and_space.log_files,
    files_and_space.segments_misplaced,
    files_and_space.index_sizes,
    files_and_space.index_deleted,
    files_and_space.not_files,
    files_and_space.not_the_brokers,
    log_cuts.settings_not_taken,
    log_cuts.records_not_taken,
    configuration.store_type,
    configuration.config_files,
    configuration.queue_types,
    config_databases.databases_not_opened,
    config_databases.config_databases_lost,
    config_databases.config_json_torn,
    queues_and_log.log_missing,
    queues_and_log.log_damaged,
    queues_and_log.queue_files,
    queues_and_log.messages_not_served,
    queues_and_log.queues_made_again,
    queues_and_log.wrong_units,
    rocksdb_queues.database_not_read,
    rocksdb_queues.not_dispatched,
    offsets.committed_outside_queue,
    offsets.delay_offsets_beyond_queue,
    offsets.delay_offsets_behind,
    offsets.delay_levels_absent,
    retention.log_begins_late,
    retention.messages_deleted,
    timers_and_epochs.timer_state,
    timers_and_epochs.epoch_file,
    files_and_space.free_space,
    configuration.queues_not_read,
    configuration.topics_not_configured,
    configuration.queues_fewer_than_configured,
    queues_and_log.units_beyond_log,
    queues_and_log.torn_tail,
)


_IN_DOUBT = frozenset({
    "store_in_use", "store_path", "log_missing", "log_damaged", "log_cut", "segment_missing", "segment_size",
    "segment_twice", "segment_misplaced", "stray_file", "queue_files", "messages_not_served", "wrong_units",
    "store_type", "database_not_read", "units_beyond_log",
})  # fmt: skip
_OF_OFFSETS = frozenset(
    {"committed_beyond_queue", "delay_offset_ahead", "delay_offset_behind", "delay_offset_beyond_queue"}
)
"""Rules whose cure is to change offsets, which may be right: it is their queues that are in doubt."""


def judge(store: StoppedStore, replicas: Sequence[Replica] = ()) -> Answer:
    """Returns the answer for what was gathered."""
    reasons = [reason for rule in RULES for reason in rule(store)]
    reasons += offsets.no_offsets(store, {replica.root: replica.offsets for replica in replicas})
    if any(reason.unsafe and reason.rule == "store_path" for reason in reasons):
        reasons = [reason for reason in reasons if reason.rule != "units_beyond_log"]  # the log is elsewhere
    doubtful = [reason for reason in reasons if reason.rule in _IN_DOUBT]
    if any(reason.unsafe for reason in doubtful):
        reasons = [reason for reason in reasons if reason.rule not in _OF_OFFSETS]
    elif doubtful:
        first = f"first see to {doubtful[0].rule}: the offset may be right"
        reasons = [replace(reason, cure=first) if reason.rule in _OF_OFFSETS else reason for reason in reasons]
    return answer_of([*reasons, *(reason for replica in replicas for reason in replicas_compared(store, replica))])


def start_facts(
    root: str, broker_conf: str | None = None, settings: Sequence[tuple[str, str]] = (), version: str | None = None
) -> dict[str, Any]:
    """Returns the answer as fields for the report of another job; where it cannot be had, it says why."""
    try:
        return safe_to_start(root, read_broker_conf(broker_conf, tuple(settings)), version).facts()
    except StoreFormatError as error:
        return {"answer": f"not known: {error}", "reasons": []}


def safe_to_start(root: str, settings: BrokerConf, version: str | None = None) -> Answer:
    """Returns whether a broker with these settings may be started on a store."""
    return judge(read_stopped_store(root, settings, version))
