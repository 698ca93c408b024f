"""``report``: what fills the table ``messages``, by topic, queue, tag, host, hour or date, and what is odd about it.

The report goes to the terminal or as JSON to stdout, all groups into a CSV file, and everything with plots into one
HTML file (``jobs.page``).
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence

from jobs import page, session, views
from jobs.config import ReportOptions
from jobs.findings import KEYS, Facts, Row, key_text, measure, moment, sentences
from jobs.reporting import Report, Reporter, size_text, time_text
from storeformat import files

SHOWN = 20
"""Groups that the terminal shows; JSON, CSV and the page have more."""
MOST_IN_JSON = 10_000


def run(options: ReportOptions, reporter: Reporter) -> Report:
    """Returns the report of one table."""
    from jobs import tables  # noqa: PLC0415  (imports Delta)

    begun = time.monotonic()
    if options.html is not None:
        page.require_plots()
    with session.spark_session("rocketmq-store-spark report") as started:
        spark = started.newSession()  # the views, and the one time zone of all times, are this report's own
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        table = tables.existing_table(spark, files.absolute(options.table))
        checks = options.checks or options.html is not None
        needed = views.VIEWS if checks else ("storage_by_date", f"storage_by_{options.by}")
        views.register(spark, table.rows(), needed)
        facts = measure(spark, options.by, checks=checks)
        if options.html is not None:
            reporter.note("drawing the page")
            picture = page.read_pictures(spark)
            about = page.About(table=options.table, version=table.version())
            files.write_bytes(files.absolute(options.html), page.render(facts, picture, about).encode())
    if options.csv is not None:
        files.write_bytes(files.absolute(options.csv), to_csv(facts).encode())
    report = Report("report", table=options.table, **facts_for_json(facts))
    report["seconds"] = round(time.monotonic() - begun, 3)
    report.text = to_text(facts)
    return report


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
        "groups_in_all": len(facts.groups),
        **({"checks": facts.checks} if facts.checks else {}),
    }


def to_csv(facts: Facts) -> str:
    """Returns all groups as CSV (RFC 4180) with a header."""
    names = list(facts.groups[0]) if facts.groups else [*KEYS[facts.by], "messages", "bytes"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(facts.groups)
    return text.getvalue()


def to_text(facts: Facts) -> str:
    """Returns the report for a terminal."""
    if not facts.brokers:
        return "The table is empty."
    names = ", ".join(f"{broker['cluster']}/{broker['broker']}" for broker in facts.brokers[:5])
    more = f" and {len(facts.brokers) - 5} more" if len(facts.brokers) > 5 else ""
    head = (
        f"{facts.messages:,} messages, {size_text(facts.bytes)}, {moment(facts.first_stored)} to "
        f"{moment(facts.last_stored)} ({time_text(facts.span)}); {names}{more}"
    )
    rows = [(*KEYS[facts.by], "messages", "bytes", "share", "messages/s", "bytes/s")]
    rows += [
        (
            *(key_text(group[key]) for key in KEYS[facts.by]),
            f"{group['messages']:,}",
            size_text(group["bytes"]),
            f"{group['share']:.1%}",
            f"{group['messages_per_second']:,.3g}",
            size_text(group["bytes_per_second"]),
        )
        for group in facts.groups[:SHOWN]
    ]
    lines = [head, "", *_aligned(rows, left=len(KEYS[facts.by]))]
    if len(facts.groups) > SHOWN:
        lines.append(f"... and {len(facts.groups) - SHOWN:,} more (--csv and --json have them)")
    if facts.checks:
        lines += ["", *(f"{title:<14}{sentence}" for title, sentence in sentences(facts.checks).items())]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Returns lines: the first ``left`` columns begin, the others end at common places."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
