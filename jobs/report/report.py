"""``report``: what fills the table ``messages``, by topic, queue, tag, host, hour or date, and its anomalies."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from jobs.contract.options import ReportOptions
from jobs.contract.report import Report, Reporter, printable
from jobs.report import page, views
from jobs.report.views import BY_REAL_TOPIC, KEYS, Facts, measure, moment, to_lines
from jobs.spark import session
from jobs.spark.spark_errors import SparkError
from jobs.table import messages_table
from storeformat.errors import MissingInput
from storeformat.javacompat import EPOCH
from storeformat.record.dispatch import HOLDING_TOPICS, OP_TOPICS
from storeformat.storage import files, locations
from udfs.table import schemas
from udfs.table.rows import FIRST_MILLISECOND, LAST_MILLISECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN = 20
"""Groups on the terminal; JSON, CSV (``MOST_GROUPS``) and the page have more."""
MOST_IN_JSON = 10_000
_IN_JSON = ("by", "messages", "bytes", "first_stored", "last_stored", "brokers", "groups_in_all")
_MUCH = 256 << 20
"""Table bytes, about ten million messages, from which on Java's second compiler pays."""
_FORMULA = re.compile('(^|;)([\\s"]*[=+@\uff1d\uff0b\uff0d\uff20-])')
"""What spreadsheets take for a formula: at the start of a cell or after a semicolon, also in full width."""
_UNREADABLE = re.compile(
    r"\[(?:FAILED_READ_FILE|PATH_NOT_FOUND|DELTA_).*|Could not find any delta files.*|FileNotFoundError: .*"
)
"""Messages of Spark, Delta and Arrow for a damaged or missing log or file."""


def run(options: ReportOptions, reporter: Reporter) -> Report:
    """Report on one table."""
    for file in filter(None, (options.html, options.csv)):
        files.refuse_directory(locations.absolute(file))
    if options.html is not None:
        page.require_plots()
    facts = measured(options, reporter)
    if options.csv is not None:
        files.replace_bytes(locations.absolute(options.csv), to_csv(facts).encode())
    text = to_lines(facts, SHOWN, " (--csv and --json have the largest of them)")
    shown = {name: getattr(facts, name) for name in _IN_JSON}
    shown |= {"groups": facts.groups[:MOST_IN_JSON]} | ({"checks": facts.checks} if facts.checks else {})
    return reporter.report("report", text=text, table=options.table, **shown)


def measured(options: ReportOptions, reporter: Reporter) -> Facts:
    """Facts of the table by Spark; also writes the page."""
    checks = options.checks or options.html is not None
    path = locations.absolute(options.table)
    table = messages_table.open_table(path)
    if table is None:
        raise MissingInput("there is no such table", path=path, advice="`load` makes one")
    needed = views.of_report(options.by, checks=checks, plots=options.html is not None)
    try:
        lasts = sum(file.size for file in table.files) > _MUCH
        with session.spark_session(delta=views.needs_delta(table), lasts=lasts) as started:
            spark = views.over_table(started, table, needed)
            narrow(spark, options, needed)
            facts = measure(spark, options.by, checks=checks, without=not_judged(options))
            if options.html is not None:
                reporter.say("drawing the page")
                drawn = page.render(facts, page.read_pictures(spark, facts), named(options), table.version)
                files.replace_bytes(locations.absolute(options.html), drawn.encode())
    except SparkError as error:
        if (said := _UNREADABLE.search(str(error.__cause__))) is None:
            raise
        raise messages_table.unreadable(path, said[0]) from error
    return facts


def narrow(spark: SparkSession, options: ReportOptions, names: Sequence[str]) -> None:
    """Limit the view ``messages`` to the report's rows; ends of runs become unknown where rows between are dropped."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (with Spark alone)

    rows = spark.table("messages")
    if options.broker is not None:
        rows = rows.where(f.col("broker") == options.broker)
    if options.begin is not None:
        rows = rows.where(f.col("store_timestamp") >= f.lit(_calendar(options.begin)))
    if options.end is not None:
        rows = rows.where(f.col("store_timestamp") <= f.lit(_calendar(options.end)))
    if options.begin is not None or options.end is not None:
        rows = rows.withColumns(dict.fromkeys(schemas.RUNS, f.lit(None).cast("int")))
    rows.createOrReplaceTempView("messages")
    if not options.topics:
        return
    wanted = [one.topic for one in options.topics]
    own, origin, group = f.col("topic").isin(wanted), f.col("origin_topic"), f.col("consumer_group")
    # KeyBuilder.buildPopRetryTopic: such a record names its topic nowhere else.
    popped = [f.endswith(group, f.lit(sign + topic)) for topic in wanted for sign in "_+"]
    retried = origin.isin(wanted) | (origin.isNull() & reduce(or_, popped))
    retried |= f.concat(f.lit("%"), f.upper("kind"), f.lit("%"), group).isin(wanted)
    for name, selected in {"retry_ageing": retried, "transactions": own, "delays": own}.items():
        if name in names:
            spark.table(name).where(selected).createOrReplaceTempView(name)
    named = [f.col("topic") == one.topic for one in options.topics]
    queues = [f.lit(True) if one.queue_id is None else f.col("queue_id") == one.queue_id for one in options.topics]
    rows = rows.where(reduce(or_, map(and_, named, queues))).withColumn("log_run", f.lit(None).cast("int"))
    rows.createOrReplaceTempView("messages")


def not_judged(options: ReportOptions) -> tuple[str, ...]:
    """Checks without an answer for a selection: what waits elsewhere belongs to a topic, not to a queue."""
    held = any(one.queue_id is not None or one.topic in (*HOLDING_TOPICS, *OP_TOPICS) for one in options.topics)
    return BY_REAL_TOPIC if held else ()


def _calendar(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=min(max(milliseconds, FIRST_MILLISECOND), LAST_MILLISECOND))


def named(options: ReportOptions) -> str:
    """Table name and the part that the report covers."""
    times = {"from": options.begin, "to": options.end}
    return ", ".join([
        options.table,
        *([] if options.broker is None else [f"broker {options.broker}"]),
        *(f"topic {topic}" for topic in options.topics),
        *(f"{word} {moment(_calendar(at))} UTC" for word, at in times.items() if at is not None),
    ])  # fmt: skip


def to_csv(facts: Facts) -> str:
    """Groups as CSV (RFC 4180) with a header."""
    names = list(facts.groups[0]) if facts.groups else [*KEYS[facts.by], "messages", "bytes"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows({name: csv_cell(name, value) for name, value in group.items()} for group in facts.groups)
    return text.getvalue()


def csv_cell(name: str, value: Any) -> Any:
    """A cell without control characters, and with an apostrophe before a formula (OWASP, CSV Injection)."""
    if isinstance(value, datetime) and name.endswith("_stored"):
        return value.isoformat(" ", "microseconds")  # all of a column alike
    return _FORMULA.sub(r"\1'\2", printable(value)) if isinstance(value, str) else value
