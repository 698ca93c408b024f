"""``preflight``: may a broker be started on this store? One line with the answer, then a reason a line, with its cure.

It reads ends of queues, configuration, checkpoint and the last part of the log, and starts no Spark: a line in
systemd's ``ExecStartPre`` can wait for it. Exit code 0 is safe, with or without notes, 1 is not.
"""

from __future__ import annotations

from jobs.contract.options import PreflightOptions
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from jobs.safety.answer import judge
from jobs.safety.evidence.evidence import gather
from jobs.safety.replicas import read_replica
from storeformat import kernels
from storeformat.store.broker_conf import read_broker_conf


def run(options: PreflightOptions, reporter: Reporter) -> Report:
    """Returns the answer for one store, with exit code 1 for no; raises as ``read_broker_conf`` and ``gather``."""
    kernels.prefer_numpy()
    settings = read_broker_conf(options.broker_conf, options.settings)
    if not settings.from_file:
        reporter.note("without --broker-conf the broker's defaults are assumed, and the sizes that the store shows")
    evidence = gather(options.store, settings, options.broker_version)
    replicas = [read_replica(evidence, root) for root in options.replicas]
    answer = judge(evidence, replicas)
    return reporter.report(
        "preflight",
        "ok" if answer.safe else "differences",
        exit_code=0 if answer.safe else 1,
        text="\n".join(answer.lines()),
        **answer.facts(),
        store=evidence.root,
        log_begin=evidence.log.begin,
        log_end=evidence.tail.end,
        log_read_from=evidence.tail.begin,
        queues=len(evidence.queues),
        after_crash=evidence.after_crash,
        broker_version=evidence.rules.version,
        broker_version_reason=evidence.release_reason,
        replicas=[replica.facts() for replica in replicas],
    )
