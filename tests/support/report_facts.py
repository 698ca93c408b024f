"""Facts and pictures for reports, made by hand: tags that a producer may well choose, two hours of one broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from jobs.report import page
from jobs.report.views import CHECKS, Facts

BEGIN = datetime(2024, 5, 30, 7, 0, tzinfo=timezone.utc)
TAGS = ["<b>bold</b>", None, "_hidden", "标签😀", 'a"quote', "$x^2$"]


def group(tag: str | None, messages: int, size: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "tags": tag,
        "messages": messages,
        "bytes": size,
        "body_bytes": size // 2,
        "first_stored": BEGIN,
        "last_stored": BEGIN + timedelta(hours=2),
        "share": 0.5,
        "messages_per_second": messages / 7200,
        "bytes_per_second": size / 7200,
    }


def facts(**changes: Any) -> Facts:
    broker = {"cluster": "c", "broker": "b&b", "messages": 21, "bytes": 2100, "first_stored": BEGIN}
    made = Facts(
        by="tag",
        brokers=[broker | {"last_stored": BEGIN + timedelta(hours=2)}],
        groups=[group(tag, 6 - at, 600 - 100 * at) for at, tag in enumerate(TAGS)],
        checks={name: [] for name in CHECKS},
        groups_in_all=len(TAGS),
    )
    if "groups" in changes:
        changes = {"groups_in_all": len(changes["groups"]), **changes}
    return replace(made, **changes)


def pictures() -> page.Pictures:
    by_time = [
        {"at": BEGIN + timedelta(minutes=30 * at), "topic": f"topic-{at % 8}", "bytes": 6000 * (at + 1)}
        for at in range(5)
    ]
    sizes = [{"from_size": 1 << n, "to_size": 2 << n, "messages": n} for n in range(7, 13)]
    return page.Pictures(timedelta(minutes=1), by_time, sizes)


ABOUT = ("/data/messages", 7)
