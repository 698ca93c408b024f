"""The arguments that each job takes: groups that several share, and the jobs' own.

How texts become values is in ``jobs.contract.option_values``. An option that was not given is not an attribute of what
is parsed: the defaults are those of the dataclasses in ``jobs.contract.options``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from jobs.contract.option_values import (
    artefacts,
    milliseconds,
    name,
    natural,
    path,
    paths,
    positive,
    rebuilt_artefacts,
    setting,
    topic_filter,
)
from storeformat.errors import UsageError
from storeformat.store.broker_rules import VERSIONS


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError, takes no abbreviations, and leaves defaults to the options classes."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, **settings)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError for what argparse would print and exit with 2 for."""
        raise UsageError(message, advice=f"see ./{self.prog} --help")


# ------------------------------------------------------------------------------------------------- groups of arguments
class Gather(argparse.Action):
    """Appends to a tuple, which starts empty at every parse."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest, ()), values))


class NameStores(argparse.Action):
    """Takes the file whose lines name stores: what one of them is called need not be given then."""

    def __init__(self, *given: Any, instead_of: Sequence[argparse.Action], **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._instead_of = instead_of

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)
        for action in self._instead_of:
            action.required = False


def add_output_arguments(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--json", action="store_true", help="print the report as one JSON object, and nothing else on stdout"
    )
    group.add_argument(
        "--report", type=path, dest="report_file", metavar="FILE", help="write the same object into FILE"
    )
    group.add_argument("--metrics", type=path, metavar="FILE", help="also write the outcome in Prometheus' text format")
    group.add_argument("--quiet", action="store_true", help="no progress and no notes on stderr")
    group.add_argument("--debug", action="store_true", help="Spark's log, and Java and Python stack traces, on stderr")


def add_store_arguments(parser: Parser, *, required: bool = True) -> argparse.Action:
    group = parser.add_argument_group("store")
    store = group.add_argument(
        "--store", type=path, required=required, metavar="ROOT", help="the broker's storePathRootDir, a path or a URI"
    )
    add_commitlog_argument(group)
    add_settings_arguments(
        group,
        "the broker.conf to take sizes and switches from",
        "the rules of which release: 4.6 (up to 4.7.0), 4.8 (4.7.1 to 4.9.0), 4.9 (4.9.1 to 4.9.8), 5.0 (5.0.0 to"
        " 5.1.0), 5.1 (5.1.1 to 5.1.4), 5.3 (5.2 and 5.3), 5.5 (5.4 and later); default: what the store shows; the"
        " report says which and why",
    )
    group.add_argument(
        "--batch-topic",
        dest="batch_topics",
        type=name,
        action=Gather,
        metavar="TOPIC",
        help="a BatchCQ topic (default: what config/topics.json and batchconsumequeue/ say); repeatable",
    )
    return store


def add_commitlog_argument(to: argparse._ActionsContainer) -> None:
    to.add_argument(
        "--commitlog", type=paths, metavar="PATH[,PATH]", help="where the segments are, if not in ROOT/commitlog"
    )


def add_settings_arguments(to: argparse._ActionsContainer, conf_help: str, version_help: str) -> None:
    to.add_argument("--broker-conf", type=path, metavar="FILE", help=conf_help)
    to.add_argument(
        "--set",
        dest="settings",
        type=setting,
        action=Gather,
        metavar="NAME=VALUE",
        help="a setting under its broker.conf name, which overrides the file; repeatable",
    )
    to.add_argument("--broker-version", choices=VERSIONS, help=version_help)


def add_log_arguments(parser: Parser, *, required: bool = True) -> argparse.Action:
    store = add_store_arguments(parser, required=required)
    group = parser.add_argument_group("reading the log")
    group.add_argument(
        "--on-damage",
        choices=("fail", "stop", "salvage"),
        help="at a damaged record: refuse the log (default), end there as broker recovery does, or continue past it",
    )
    group.add_argument(
        "--keep-crc-failures",
        action="store_true",
        help="with salvage: keep a record if nothing but the CRC of its body is wrong",
    )
    group.add_argument(
        "--until-offset", type=natural, metavar="N", help="ignore records that end after this commit-log offset"
    )
    group.add_argument(
        "--split-size", type=positive, metavar="BYTES", help="bytes a task reads; never changes the result"
    )
    return store


def add_fleet_argument(parser: Parser, *instead_of: argparse.Action) -> None:
    parser.add_argument(
        "--stores",
        type=path,
        action=NameStores,
        instead_of=instead_of,
        metavar="FILE",
        help="the stores of several brokers, a line each: store,cluster,broker,broker.conf (the last three may be"
        " missing). Or --store with {cluster} and {broker} in place of directory names: each directory that exists is a"
        " broker; --cluster, --broker, --broker-conf, --commitlog and --replica may contain them, too. The report has"
        " an entry for each broker; the exit code is the largest of theirs",
    )


def add_replica_argument(
    parser: Parser,
    use: str = "replaces what is damaged or missing here, and with consumer-offsets says what its broker knew of them",
) -> None:
    what = f"a store with a copy of the log, such as a slave: {use}"
    parser.add_argument("--replica", dest="replicas", type=path, action=Gather, metavar="ROOT", help=what)


def add_topic_argument(parser: Parser) -> None:
    parser.add_argument(
        "--topic",
        dest="topics",
        type=topic_filter,
        action=Gather,
        metavar="TOPIC[:QUEUE]",
        help="only this topic, or this queue of it; repeatable",
    )


def add_stopped_store_argument(parser: Parser) -> None:
    parser.add_argument("--store", type=path, required=True, metavar="ROOT", help="the store of the stopped broker")


def add_table_argument(parser: Parser) -> None:
    parser.add_argument("--table", type=path, required=True, metavar="TABLE", help="path or URI of the Delta table")


def add_dry_run_argument(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, write nothing")


# ------------------------------------------------------------------------------------------------------ the jobs' own
def add_demo(parser: Parser) -> None:
    parser.add_argument(
        "--output", type=path, metavar="DIR", help="keep the rebuilt files and the table in DIR (default: remove them)"
    )


def add_rebuild(parser: Parser) -> None:
    add_log_arguments(parser)
    add_replica_argument(parser)
    parser.add_argument(
        "--output", type=path, required=True, metavar="DIR", help="absent or empty; appears whole or not at all"
    )
    parser.add_argument(
        "--repair-log",
        type=path,
        metavar="DIR2",
        help="with salvage or --replica: write repaired copies of the damaged segments, which a broker reads to the"
        " end; records that it skips take the place of what is lost",
    )
    add_topic_argument(parser)
    parser.add_argument(
        "--only",
        type=rebuilt_artefacts,
        metavar="LIST",
        help="some of consumequeue,index,checkpoint (the default), consumer-offsets (config/consumerOffset.json) and"
        " timers (timerlog/, config/timercheck); or rocksdb: the pairs of RocksDB queues, as a Parquet table, which"
        " `publish` does not take",
    )
    parser.add_argument(
        "--queue-store",
        choices=("file", "rocksdb", "both"),
        help="where the consume queues go: files, or the database of brokers with storeType=defaultRocksDB (needs the"
        " extra rocksdb); default: as broker.conf and the store say",
    )
    parser.add_argument(
        "--topics-json",
        action="store_true",
        help="also make config/topics.json: what the store still has of it, and every other topic with as many queues"
        " as the log shows; `publish` puts it into the store",
    )
    parser.add_argument(
        "--consumer-offsets-at",
        type=milliseconds,
        metavar="TIME",
        help="with consumer-offsets: every group begins at the first message that was stored at or after this time",
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="on an object store: leave out the zeros after the data of each file; `publish` adds them, no broker"
        " takes such files as they are",
    )
    parser.add_argument("--ignore-free-space", action="store_true", help="write even if DIR's disk seems too small")
    add_dry_run_argument(parser)


def add_publish(parser: Parser) -> None:
    add_stopped_store_argument(parser)
    parser.add_argument("--from", dest="rebuilt", type=path, required=True, metavar="DIR", help="what `rebuild` wrote")
    add_commitlog_argument(parser)
    parser.add_argument(
        "--after-crash", action="store_true", help="the broker did not stop cleanly: accept its abort file"
    )
    add_dry_run_argument(parser)


def add_restore(parser: Parser) -> None:
    add_stopped_store_argument(parser)
    parser.add_argument(
        "--backup", type=name, metavar="NAME", help="which directory of ROOT/backup (default: the newest)"
    )
    add_dry_run_argument(parser)


def add_preflight(parser: Parser) -> None:
    parser.add_argument(
        "--store", type=path, required=True, metavar="ROOT", help="the broker's storePathRootDir, a local path"
    )
    add_settings_arguments(
        parser,
        "the broker.conf with which the broker will be started",
        "the release that will be started (default: what the store shows)",
    )
    add_replica_argument(parser, "says which is longer, and what is lost by starting this one")


def add_verify(parser: Parser) -> None:
    add_fleet_argument(parser, add_log_arguments(parser))
    add_replica_argument(parser)
    add_topic_argument(parser)
    parser.add_argument(
        "--only", type=artefacts, metavar="LIST", help="some of consumequeue,index,checkpoint,consumer-offsets"
    )


def add_inspect(parser: Parser) -> None:
    add_fleet_argument(parser, add_log_arguments(parser))
    add_replica_argument(parser)
    add_topic_argument(parser)
    parser.add_argument(
        "--from", dest="from_offset", type=natural, metavar="N", help="show records from this offset on"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="show at most N records")
    parser.add_argument("--bodies", action="store_true", help="show bodies, too")


def add_load(parser: Parser) -> None:
    store = add_log_arguments(parser)
    add_table_argument(parser)
    named = [
        parser.add_argument(f"--{what}", type=name, required=True, metavar=letter, help=f"value of the column {what}")
        for what, letter in (("cluster", "C"), ("broker", "B"))
    ]
    add_fleet_argument(parser, store, *named)
    add_topic_argument(parser)
    parser.add_argument("--time-zone", type=name, metavar="ZONE", help="the time zone of store_date (new table: UTC)")
    parser.add_argument("--with-bodies", action="store_true", help="keep message bodies in the table")
    parser.add_argument(
        "--allow-gap", action="store_true", help="continue where retention deleted records that were never loaded"
    )
    parser.add_argument(
        "--repair-from", type=natural, metavar="N", help="replace all rows of this broker from commit-log offset N on"
    )
    add_dry_run_argument(parser)


def add_report(parser: Parser) -> None:
    add_table_argument(parser)
    parser.add_argument(
        "--by", choices=("topic", "queue", "tag", "host", "hour", "date"), help="what to group by (default: topic)"
    )
    parser.add_argument(
        "--checks", action="store_true", help="also check retries, duplicates, transactions, delays, gaps and clocks"
    )
    parser.add_argument(
        "--html", type=path, metavar="FILE", help="write one self-contained page with plots and all checks"
    )
    parser.add_argument("--csv", type=path, metavar="FILE", help="write the 100,000 largest groups as CSV")
