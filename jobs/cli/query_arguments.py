"""The arguments of ``query``: a subcommand for each kind of question."""

from __future__ import annotations

from jobs.cli.arguments import Parser, add_log_arguments, add_output_arguments
from jobs.contract.option_values import milliseconds, name, natural, path, positive


def add_query(parser: Parser) -> None:
    """Adds the kinds of question, each with its own options and those of reading a log."""
    add_log_arguments(parser, required=False)
    parser.usage = "%(prog)s --store ROOT {key,id,offset,time,list,lag} ... [options]"
    kinds = parser.add_subparsers(
        prog=f"{parser.prog} --store ROOT",
        dest="kind",
        required=True,
        metavar="{key,id,offset,time,list,lag}",
        title="questions",
    )
    parser_of: dict[str, Parser] = {}
    for kind, summary in (
        ("key", "messages with a key (queryMsgByKey)"),
        ("id", "one message by offsetMsgId, or by UNIQ_KEY with --topic (queryMsgById)"),
        ("offset", "one message by its place in a queue (queryMsgByOffset)"),
        ("time", "the queue offset at a time (searchOffset)"),
        ("list", "the messages of a topic in the order of its queues, or a file of them"),
        ("lag", "how far groups lag behind the ends of their queues"),
    ):
        one = parser_of[kind] = kinds.add_parser(kind, help=summary, description=summary[0].upper() + summary[1:])
        _add_shared(one, kind)
    parser_of["key"].add_argument(
        "--key", type=name, required=True, metavar="K", help="one of its keys, or its UNIQ_KEY"
    )
    parser_of["key"].add_argument(
        "--max", dest="max_messages", type=positive, metavar="N", help="at most N (default 64)"
    )
    parser_of["key"].add_argument(
        "--explain", action="store_true", help="also look into the log, and say why the index does not find a message"
    )
    _add_list_and_lag(parser_of["list"], parser_of["lag"])
    parser_of["id"].add_argument("message_id", metavar="MESSAGE_ID", help="an offsetMsgId, or with --topic a UNIQ_KEY")
    parser_of["offset"].add_argument("--offset", required=True, type=natural, metavar="N", help="its queue offset")
    parser_of["time"].add_argument(
        "--time",
        required=True,
        type=milliseconds,
        metavar="MS",
        help="milliseconds since 1970, or ISO 8601 with its zone",
    )
    parser_of["time"].add_argument(
        "--boundary",
        choices=("lower", "upper"),
        help="the first message at or after the time (lower, the default), or the last at or before it (upper)",
    )


def _add_shared(one: Parser, kind: str) -> None:
    """Adds the options that several kinds of question have."""
    if kind != "lag":
        one.add_argument(
            "--topic",
            type=name,
            required=kind != "id",
            metavar="T",
            help="its topic" if kind != "id" else "its topic: the id is then a UNIQ_KEY, as producers know it",
        )
    if kind in ("offset", "time", "list"):
        one.add_argument(
            "--queue", dest="queue_id", required=kind != "list", type=natural, metavar="Q", help="the queue's id"
        )
    if kind in ("key", "list"):
        one.add_argument(
            "--begin",
            type=milliseconds,
            metavar="MS",
            help="stored at or after this time: milliseconds since 1970, or ISO 8601 with its zone",
        )
        one.add_argument("--end", type=milliseconds, metavar="MS", help="stored at or before this time")
    add_log_arguments(one, required=False)
    if kind not in ("list", "lag"):
        one.add_argument("--scan", action="store_true", help="read the log itself, use neither index nor queues")
    if kind != "lag":
        one.add_argument("--bodies", action="store_true", help="show bodies, too")
    add_output_arguments(one)


def _add_list_and_lag(listing: Parser, lag: Parser) -> None:
    listing.add_argument(
        "--max", dest="most", type=positive, metavar="N", help="at most N (default 64, with --export all)"
    )
    listing.add_argument(
        "--export", type=path, metavar="FILE", help="write them into FILE: .jsonl, or .parquet; bodies with --bodies"
    )
    listing.add_argument(
        "--waiting",
        action="store_true",
        help="show instead the topic's messages that the broker keeps elsewhere: delayed, timer, half, retried, dead",
    )
    listing.add_argument(
        "--not-consumed", action="store_true", help="only messages from the committed offset of --group on"
    )
    listing.add_argument("--group", type=name, metavar="G", help="the group of --not-consumed")
    lag.add_argument("--group", type=name, metavar="G", help="only this group")
