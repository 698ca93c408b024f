"""The arguments of each job, made from the fields of its options; defaults are only there (argparse gets none)."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from functools import cache
from inspect import get_annotations
from typing import Any, NoReturn

from jobs.contract.options import JobOptions, LogOptions, QueryOptions, StoreOptions
from storeformat.errors import UsageError

_GROUPS = {StoreOptions: "store", LogOptions: "reading the log", JobOptions: "output"}
_QUESTIONS = {
    "key": ("messages with a key (queryMsgByKey)", "topic key", "begin end scan bodies max_messages"),
    "id": (
        "one message by offsetMsgId, or by UNIQ_KEY with --topic (queryMsgById)",
        "",
        "topic scan bodies message_id",
    ),
    "offset": ("one message by its place in a queue (queryMsgByOffset)", "topic queue_id offset", "scan bodies"),
    "time": ("the queue offset at a time (searchOffset)", "topic queue_id time", "scan bodies boundary"),
    "list": (
        "the messages of a topic in the order of its queues, or a file of them",
        "topic",
        "queue_id begin end bodies most export waiting not_consumed group",
    ),
    "lag": ("how far groups lag behind the ends of their queues", "", "group"),
}
"""Kinds of question: summary, required fields, optional fields."""
_OTHER_TEXTS = {
    ("id", "topic"): "its topic: the id is then a UNIQ_KEY, as producers know it",
    ("lag", "group"): "only this group",
}

# org.apache.spark.launcher.SparkSubmitOptionParser (4.2.0): options that take a value, and switches.
VALUED = frozenset({
    "--archives", "--class", "--conf", "-c", "--deploy-mode", "--driver-class-path", "--driver-cores",
    "--driver-java-options", "--driver-library-path", "--driver-memory", "--exclude-packages", "--executor-cores",
    "--executor-memory", "--files", "--jars", "--keytab", "--kill", "--master", "--name", "--num-executors",
    "--packages", "--principal", "--properties-file", "--proxy-user", "--py-files", "--queue", "--remote",
    "--repositories", "--status", "--total-executor-cores",
})  # fmt: skip
SWITCHES = frozenset({"--load-spark-defaults", "--supervise", "--usage-error", "--verbose", "-v"})


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError, takes no abbreviations, and leaves defaults to the options classes."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, **settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, advice=f"see ./{self.prog} --help")


class Gather(argparse.Action):
    """Append to a tuple, which starts empty at every parse."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest, ()), values))


def add_arguments(parser: Parser, kind: type[JobOptions]) -> None:
    """Add the options of a job."""
    if issubclass(kind, QueryOptions):
        _add_questions(parser)
    add_options(parser, LogOptions if issubclass(kind, QueryOptions) else kind, needed=kind is not QueryOptions)


def add_options(parser: Parser, kind: type[JobOptions], *, needed: bool = True) -> None:
    """Add the options of a class, those of every job last; fields without a default are required if ``needed``."""
    everyone, *others = (owner for owner in reversed(kind.__mro__) if issubclass(owner, JobOptions))
    for owner in (*others, everyone):
        group = parser.add_argument_group(_GROUPS[owner]) if owner in _GROUPS else parser
        for field, hint in _hints(owner).items():  # type: ignore[arg-type]  # mypy takes instances' __hash__
            if hasattr(hint, "__metadata__"):  # as Annotated has
                _add(group, field, hint, needed=needed and not hasattr(kind, field))


@cache
def _hints(kind: type[JobOptions]) -> dict[str, Any]:
    return get_annotations(kind, eval_str=True)


def _add(to: argparse._ActionsContainer, field: str, hint: Any, *, needed: bool, text: str | None = None) -> None:
    *given, said = hint.__metadata__
    settings: dict[str, Any] = {"help": text or said}
    flag = "--" + field.replace("_", "-")
    if not given:
        settings["action"] = "store_true"
    for one in given:
        flag = one.flag or flag
        settings["choices" if isinstance(one.value, tuple) else "type"] = one.value
        settings["metavar"] = one.metavar
        if one.many:
            settings["action"] = Gather
    if flag.startswith("--"):
        settings |= {"dest": field, "required": needed}
    to.add_argument(flag, **settings)


def _add_questions(parser: Parser) -> None:
    kinds = f"{{{','.join(_QUESTIONS)}}}"
    parser.usage = f"%(prog)s --store ROOT {kinds} ... [options]"
    chosen = parser.add_subparsers(
        prog=f"{parser.prog} --store ROOT", dest="kind", required=True, metavar=kinds, title="questions"
    )
    hints = _hints(QueryOptions)
    for kind, (summary, needs, takes) in _QUESTIONS.items():
        one = chosen.add_parser(kind, help=summary, description=summary[0].upper() + summary[1:])
        for field in (*needs.split(), *takes.split()):
            _add(one, field, hints[field], needed=field in needs.split(), text=_OTHER_TEXTS.get((kind, field)))
        add_options(one, LogOptions, needed=False)


def split_command_line(arguments: Sequence[str], jobs: Collection[str]) -> tuple[list[str], list[str]]:
    """Options for spark-submit, and the rest from the job's name on."""
    at = 0
    while at < len(arguments) and arguments[at] not in jobs:
        word = arguments[at]
        name, equals, _ = word.partition("=")
        if word in VALUED:
            at += 2
        elif word in SWITCHES or (equals and name in VALUED):
            at += 1
        elif word.startswith("-") and any(argument in jobs for argument in arguments[at:]):
            raise UsageError(f"{word} is not an option of spark-submit", advice="options of a job come after its name")
        else:
            break
    return list(arguments[:at]), list(arguments[at:])
