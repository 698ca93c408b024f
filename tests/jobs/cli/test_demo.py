"""``demo`` with its tasks in this process: what it makes of the bundled store and says; archives of every Python."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pytest
from support.here import tasks_here
from support.report_facts import facts

from jobs.cli import demo
from jobs.contract.options import DemoOptions
from jobs.contract.report import Report
from jobs.contract.reporter import Reporter
from storeformat.errors import Refused


@pytest.mark.usefixtures("spark")  # the report is asked of it
def test_a_demo_makes_what_it_says(tmp_path: Path) -> None:
    out, said = tmp_path / "kept", io.StringIO()
    with tasks_here():
        report = demo.run(DemoOptions(output=str(out)), Reporter(stream=said))
        with pytest.raises(Refused, match="not empty"):
            demo.run(DemoOptions(output=str(out)), Reporter(quiet=True))
    counts = json.loads((demo._DATA / "store.json").read_text(encoding="utf-8"))["counts"]
    expected = {
        "job": "demo", "status": "ok", "broker": "5.3.3", "messages": counts["messages"], "rows": counts["messages"],
        "consume_queue_files": counts["consume_queue_files"], "index_files": counts["index_files"],
        "consume_queue_files_identical": counts["consume_queue_files"],
        "index_files_identical": counts["index_files"],
    }  # fmt: skip
    assert {name: report[name] for name in expected} == expected
    assert [path.name for path in sorted(out.iterdir())] == ["messages", "rebuilt", "store"]
    assert [path.name for path in (out / "store" / "lost").iterdir()] == ["commitlog"]
    rows = deltalake.DeltaTable(out / "messages").to_pyarrow_table(columns=["cluster", "broker"])
    assert set(map(tuple, map(dict.values, rows.to_pylist()))) == {("demo", "broker-a")}
    assert [line.partition(" store ")[0] for line in said.getvalue().splitlines()] == [
        "unpacked the", "loading its messages into a Delta table",
    ]  # fmt: skip
    assert "4,273 messages, 10 segments, 2.6 MB of commit log" in report.to_text()
    assert "\n  A  " in report.to_text()
    assert f"In {out}: rebuilt/" in report.to_text()


def test_a_demo_whose_files_nobody_keeps_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.tempfile, "tempdir", str(tmp_path))
    with demo._workplace(DemoOptions()) as work:
        assert work.parent == tmp_path
        assert work.name.startswith("rocketmq-store-spark-demo-")
    assert list(tmp_path.iterdir()) == []


def test_a_python_whose_archives_know_no_filter_unpacks_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That argument came with Python 3.10.12 and 3.11.4: Debian 12 and early Ubuntu 22.04 have older ones."""
    plain = tarfile.TarFile.extractall

    def extractall(self: tarfile.TarFile, path: Any = ".", members: Any = None, *, numeric_owner: bool = False) -> None:
        plain(self, path, members, numeric_owner=numeric_owner)

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    about = json.loads((demo._DATA / "store.json").read_text(encoding="utf-8"))
    root = demo._unpack(about, tmp_path)
    assert (root / "original" / "consumequeue").is_dir()
    assert [path.name for path in (root / "lost").iterdir()] == ["commitlog"]


def test_files_are_compared_by_their_places_and_bytes(tmp_path: Path) -> None:
    for side, files in (("one", {"T/0": b"a", "T/1": b"b"}), ("other", {"T/0": b"a", "T/1": b"c", "T/2": b"d"})):
        for name, content in files.items():
            path = tmp_path / side / "consumequeue" / name / "0"
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
    (tmp_path / "one" / "consumequeue" / "T" / "directory").mkdir()
    assert demo.compare_queue_files(tmp_path / "one", tmp_path / "other") == (3, 1)


def test_index_files_are_compared_in_their_order(tmp_path: Path) -> None:
    for side, files in (("one", {"1": b"a", "2": b"b", "3": b"c"}), ("other", {"4": b"a", "5": b"x"})):
        (tmp_path / side / "index").mkdir(parents=True)
        for name, content in files.items():
            (tmp_path / side / "index" / name).write_bytes(content)
    assert demo.compare_index_files(tmp_path / "one", tmp_path / "other") == (3, 1)
    assert demo.compare_index_files(tmp_path / "other", tmp_path / "one") == (3, 1)


def said(records: int = 21, same: tuple[int, int] = (9, 2), output: str | None = None) -> Report:
    """What a demo says of a log with 21 rows in the table, nine queue files and two index files."""
    damaged = [SimpleNamespace(begin=10, end=14), SimpleNamespace(begin=20, end=23)]
    reading = SimpleNamespace(
        records=records, record_bytes=1234, blank_bytes=56, unwritten_bytes=78, segments=[1, 2, 3], begin=0, end=4096,
        damaged=damaged, facts=lambda: {"log_end": 4096},
    )  # fmt: skip
    built: Any = SimpleNamespace(reading=reading)
    compared = {"consumequeue": (9, same[0]), "index": (2, same[1])}
    options, about = DemoOptions(output=output), {"rocketmq": "5.3.3"}
    return demo._report(options, about, built, compared, facts(), Reporter(quiet=True))


@pytest.mark.parametrize("wrong", [{"same": (8, 2)}, {"same": (9, 1)}, {"records": 20}])
def test_a_demo_that_differs_says_so(wrong: dict[str, Any]) -> None:
    assert said(**wrong)["status"] == "differences"
