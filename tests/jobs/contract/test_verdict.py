"""One verdict: no report of any job holds two answers, whatever is missing of a store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.golden import GoldenStore
from support.here import tasks_here
from support.rebuilding import options_for
from support.store_to_start import configure

from jobs.cli import command_line
from jobs.contract.verdict import EXIT_CODE_OF_STATUS, status_of

MISSING = ("nothing", "consumequeue", "index", "checkpoint", "config", "last queue", "last segment", "log's end")
_NEWEST = golden.newest_of_each_scenario()
STORES = [
    store if store in _NEWEST and store.scenario == "base" else pytest.param(store, marks=pytest.mark.slow)
    for store in golden.stores()
]


@pytest.mark.parametrize(
    ("facts", "more", "status"),
    [
        ({}, {}, "ok"),
        ({"answer": "safe to start, but read this first", "found": 3}, {}, "ok"),
        ({"found": 0}, {}, "nothing_found"),
        ({"found": 3}, {"unknown": True}, "unknown"),
        ({"answer": "not safe to start"}, {}, "unsafe"),
        ({"answer": "not known: why"}, {}, "unsafe"),
        ({"lost_messages_at_least": 1, "answer": "not safe to start"}, {}, "damaged"),
        ({"damaged_ranges": [{"begin": 1}]}, {}, "damaged"),
        ({}, {"damaged": True}, "damaged"),
        ({"counts": {"missing_unit": 1}, "damaged_ranges": [1]}, {}, "differences"),
        ({"lost_messages": 3}, {"differs": True}, "differences"),
    ],
)
def test_the_status_of_a_report(facts: dict[str, Any], more: dict[str, bool], status: str) -> None:
    assert status_of(facts, **more) == status


def take_away(root: Path, what: str) -> None:
    path = root / what
    if what == "last queue":
        path = max((root / "consumequeue").glob("*/*"))
    if what in ("last segment", "log's end"):
        path = max((root / "commitlog").iterdir())
    if what == "log's end":
        content = bytearray(path.read_bytes())
        content[len(content.rstrip(b"\0")) - 100 :] = bytes(len(content) - len(content.rstrip(b"\0")) + 100)
        path.write_bytes(content)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def consistent(report: dict[str, Any], code: int) -> bool:
    """Whether status, answer, exit code and what was found say the same."""
    against = [report.get(name) for name in ("counts", "damaged_ranges", "lost_messages_at_least", "error")]
    safe = report.get("answer", "safe").startswith("safe")
    unsafe = any(reason["unsafe"] for reason in report.get("reasons", ()))
    unknown = report["job"] == "query" and any(row["lag"] is None for row in report.get("queues", ()))
    is_ok = not any(against) and safe and not unknown and report.get("found") != 0
    if report["status"] not in ("error", "refused") and code != EXIT_CODE_OF_STATUS[report["status"]]:
        return False
    return safe != unsafe and (code == 0) == (report["status"] == "ok") == is_ok


@pytest.mark.parametrize("store", STORES, ids=str)
def test_no_report_holds_two_answers(store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in MISSING:
        root = golden.unpack(store, tmp_path / what)
        configure(root)
        take_away(root, what)
        given = options_for(Path(), Path(), store.settings).settings
        sizes = [part for name, value in given for part in ("--set", f"{name}={value}")]
        for words in (
            ["verify", *sizes],
            ["preflight", *sizes],
            ["inspect", *sizes],
            ["query", "lag", *sizes],
            ["rebuild", "--output", str(tmp_path / "out"), "--on-damage", "salvage", *sizes],
            ["publish", "--from", str(tmp_path / "out"), "--after-crash"],
            ["restore"],
        ):
            with tasks_here():
                code = command_line.main([*words, "--store", str(root), "--json", "--quiet"])
            report = json.loads(capsys.readouterr().out)
            assert consistent(report, code), (what, words, report)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
