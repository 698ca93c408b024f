"""Messages that ``query list`` exported are sent again by a real producer, with the program that README names: bodies,
tags, keys and properties are the same; ids, offsets and times are new.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.drilling import run_job
from support.real_broker import BrokerSite

pytestmark = pytest.mark.broker

RESEND = Path(__file__).resolve().parents[2] / "conf" / "Resend.java"
COUNTS = {"normal": 30, "large": 2, "tagged": 20}
NEW = {"UNIQ_KEY", "WAIT", "CLUSTER", "TRACE_ON", "MSG_REGION"}
"""Properties that a client or a broker sets anew."""


def exported(store: Path, conf: Path, topic: str, target: Path) -> list[dict[str, Any]]:
    done = run_job("query", "--store", store, "--broker-conf", conf, "list", "--topic", topic, "--bodies",
                   "--export", target)  # fmt: skip
    assert done.code == 0
    return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]


def content(row: dict[str, Any]) -> str:
    """What a consumer sees, but for ids, offsets and times."""
    kept = {name: value for name, value in row["properties"].items() if name not in NEW}
    return json.dumps(
        [row["topic"], row.get("body"), row.get("body_base64"), row["flag"], row["tags"], row["keys"], kept]
    )


def test_what_was_exported_arrives_again(tmp_path: Path) -> None:
    with BrokerSite("5.3.3", tmp_path) as site:
        store = tmp_path / "store"
        site.start(store)
        site.clients({"command": "send", "round": "one", "create": ["Normal", "Tagged"], "counts": COUNTS})
        site.stop()
        conf = site.broker_conf(store)
        before = {topic: exported(store, conf, topic, tmp_path / f"{topic}.jsonl") for topic in ("Normal", "Tagged")}
        site.start(store)
        for topic, rows in before.items():
            said = site.run_java(str(RESEND), site.name_server, str(tmp_path / f"{topic}.jsonl"))
            assert f"{len(rows)} sent" in said
        site.stop()
        assert sum(map(len, before.values())) == sum(COUNTS.values())
        for topic, rows in before.items():
            after = exported(store, conf, topic, tmp_path / f"{topic}-again.jsonl")
            assert Counter(map(content, after)) == Counter([*map(content, rows), *map(content, rows)])
            assert len({row["uniq_key"] for row in after}) == len(after) == 2 * len(rows)
