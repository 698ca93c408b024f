"""``report``: what fills the table ``messages``, by topic, queue, tag, host, hour or date, and what is odd about it.

The report goes to the terminal or as JSON to stdout, all groups into a CSV file, and everything with plots into one
HTML file (``jobs.report.page``).
"""

from __future__ import annotations

import csv
import io
from typing import Any

from jobs.contract.options import ReportOptions
from jobs.contract.report import Report, printable
from jobs.contract.reporter import Reporter
from jobs.report import page, views
from jobs.report.facts import KEYS, Facts, Row, measure, to_text
from jobs.report.plain_facts import READ, measure_plain
from jobs.spark import session
from jobs.table import plain_table
from storeformat.storage import locations, outputs

SHOWN = 20
"""Groups that the terminal shows; JSON, CSV (``MOST_GROUPS``) and the page have more."""
MOST_IN_JSON = 10_000
FORMULA_BEGINS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet takes for a formula at the start of a cell, in full width, too."""


def run(options: ReportOptions, reporter: Reporter) -> Report:
    """Returns the report of one table."""
    for file in filter(None, (options.html, options.csv)):
        outputs.refuse_directory(locations.absolute(file))
    if options.html is not None:
        page.require_plots()
    checks = options.checks or options.html is not None
    facts = None if checks else without_spark(options)
    if facts is None:
        facts = with_spark(options, reporter, checks=checks)
    if options.csv is not None:
        outputs.replace_bytes(locations.absolute(options.csv), to_csv(facts).encode())
    text = to_text(facts, SHOWN, " (--csv and --json have the largest of them)")
    return reporter.report("report", text=text, table=options.table, **facts_for_json(facts))


def without_spark(options: ReportOptions) -> Facts | None:
    """Returns the facts of a plain table of ours; None where Spark is asked for, or has to look at what is there."""
    if not session.does_without_spark(0):
        return None
    table = plain_table.open_plain(locations.absolute(options.table))
    return measure_plain(table, options.by) if table is not None and table.has(READ) else None


def with_spark(options: ReportOptions, reporter: Reporter, *, checks: bool) -> Facts:
    """Returns the facts that Spark finds, and writes the page if the options ask for it."""
    with session.spark_session("report") as started:
        needed = views.VIEWS if checks else ("storage_by_date", f"storage_by_{options.by}")
        spark, table = views.over_table(started, locations.absolute(options.table), needed)
        facts = measure(spark, options.by, checks=checks)
        if options.html is not None:
            reporter.say("drawing the page")
            picture = page.read_pictures(spark)
            about = page.About(table=options.table, version=table.version())
            outputs.replace_bytes(locations.absolute(options.html), page.render(facts, picture, about).encode())
    return facts


def facts_for_json(facts: Facts) -> Row:
    """Returns the report's own fields; at most ``MOST_IN_JSON`` groups, the largest."""
    return {
        "by": facts.by,
        "messages": facts.messages,
        "bytes": facts.bytes,
        "first_stored": facts.first_stored,
        "last_stored": facts.last_stored,
        "brokers": list(facts.brokers),
        "groups": list(facts.groups[:MOST_IN_JSON]),
        "groups_in_all": facts.groups_in_all,
        **({"checks": facts.checks} if facts.checks else {}),
    }


def to_csv(facts: Facts) -> str:
    """Returns the groups as CSV (RFC 4180) with a header."""
    names = list(facts.groups[0]) if facts.groups else [*KEYS[facts.by], "messages", "bytes"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in group.items()} for group in facts.groups)
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """Returns a cell that no spreadsheet takes for a formula (OWASP, CSV Injection) and that has no control character.

    Tags and topics are what producers chose: one that begins like a formula gets an apostrophe before it.
    """
    if not isinstance(value, str):
        return value
    shown = printable(value)
    return f"'{shown}" if shown.startswith(FORMULA_BEGINS) else shown
