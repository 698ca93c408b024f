"""``preflight``: may a broker be started on this store? One line with the answer, then a reason a line, with its cure.

It reads ends of queues, configuration, checkpoint and the last part of the log, and starts no Spark: a line in
systemd's ``ExecStartPre`` can wait for it. Exit code 0 is safe, with or without notes, 1 is not.
"""

from __future__ import annotations

from jobs.contract.options import PreflightOptions
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.preflight.answer import judge
from jobs.preflight.replicas import read_replica
from jobs.preflight.stopped_store import StoppedStore, read_stopped_store
from storeformat import kernels
from storeformat.store.broker_conf import read_broker_conf
from storeformat.store.setting_names import NOT_JUDGED


def run(options: PreflightOptions, reporter: Reporter) -> Report:
    """Returns the answer for one store, with exit code 1 for no."""
    kernels.prefer_numpy()
    settings = read_broker_conf(options.broker_conf, options.settings)
    if not settings.from_file:
        reporter.note("without --broker-conf the broker's defaults are assumed, and the sizes that the store shows")
    store = read_stopped_store(options.store, settings, options.broker_version)
    replicas = [read_replica(store, root) for root in options.replicas]
    answer = judge(store, replicas)
    if store.suggests is not None:
        reporter.note(f"the store suggests the rules of {store.suggests}")
    seen, unseen = looked_at(store), not_looked_at(store)
    return reporter.report(
        "preflight",
        text=[*answer.lines(), f"looked at: {'; '.join(seen)}", f"not looked at: {'; '.join(unseen)}"],
        **answer.facts(),
        store=store.root,
        log_begin=store.log.begin,
        log_end=store.tail.end,
        log_read_from=store.tail.begin,
        queues=len(store.queues),
        after_crash=store.after_crash,
        broker_version=store.rules.version,
        broker_version_reason=store.release_reason,
        looked_at=seen,
        not_looked_at=unseen,
        replicas=[replica.facts() for replica in replicas],
    )


def looked_at(store: StoppedStore) -> list[str]:
    """Returns what the rules looked at."""
    conf, in_databases = store.conf, store.config_in_databases
    queues = "how far the queues in RocksDB are" if store.queues_in_rocksdb else f"{len(store.queues)} queues"
    return [
        f"the log from offset {store.tail.begin} to {store.tail.end}",
        queues,
        "that the databases of config/ are there" if in_databases else "topics, groups and committed offsets",
        *([] if store.queues_in_rocksdb else ["delay levels and timers"]),
        "lengths and owners of files, and free space",
        *(["broker.conf"] if conf.from_file else []),
        f"what a broker does that has the rules of {store.rules.version} ({store.release_reason})",
    ]


def not_looked_at(store: StoppedStore) -> list[str]:
    """Returns what no rule looked at, and may matter."""
    conf, tail, root = store.conf, store.tail, store.conf.given.get("storePathRootDir")
    return [
        *([f"the log before offset {tail.begin}, and its queues there"] if tail.begin > store.log.begin else []),
        *(["units of queues in RocksDB, delay levels and timers"] if store.queues_in_rocksdb else []),
        *(["topics, groups and committed offsets in databases"] if store.config_in_databases else []),
        "entries of the index",
        "what consumers of POP hold",
        *([] if conf.from_file else ["broker.conf, which was not given"]),
        *(["~/store, which a broker takes without storePathRootDir"] if conf.from_file and not root else []),
        *([f"settings: {', '.join(sorted(settings))}"] if (settings := NOT_JUDGED & conf.given.keys()) else []),
    ]
