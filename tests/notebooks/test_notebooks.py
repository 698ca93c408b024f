"""The notebooks run, draw, and say what is true of the data they are about."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest
from support.store_builder import LogBuilder

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TRUE_SENTENCES = {
    # The store has 4,273 messages, the largest topic is A (tests/golden/manifest.json, and a slow count of it).
    "capacity": [
        r"`A` holds 44% of the log's 2\.6 MB",
        r"is full on 2021-10-\d\d",
        r"Kept for 72 hours, no more than \d\.\d+ MB",
    ],
    # notebooks/shop/README.md: what the clients did.
    "forensics": [
        r"`invoice-service` failed for 142 of 142 messages of `orders` born from .{20} \(3\d seconds\): it was down",
        r"81 of \d+ messages ended in the dead letter queue",
        r"4 times to wait for a retry, 4 times to be tried again, .* as a dead letter",
    ],
    "health": [
        r"`ledger` retried 42 times and gave up on 14 messages",
        r"`warehouse` retried 48 times and gave up on 0 messages",
        r"27 of the 1,121 messages in `orders` \(2\.4%\) are copies",
        r"689 of 689 delayed messages came \(0 are overdue\)",
        r"83% of 218 transactions were committed",
        r"0 messages are missing",
    ],
}
OF_AN_OWN_STORE = {
    "capacity": r"`T39` holds 3% of the log's 0\.1 MB",
    "forensics": r"No consumer has sent a message back",
    "health": r"In 40 queues 0 messages are missing",
}
FIGURES = {"capacity": 3, "forensics": 4, "health": 5}


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.py")} - {"opening"} == set(TRUE_SENTENCES)


@pytest.mark.notebook
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "health" else pytest.mark.slow) for name in sorted(TRUE_SENTENCES)]
)
def test_a_notebook(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(name, tmp_path, monkeypatch)
    for sentence in TRUE_SENTENCES[name]:
        assert any(re.search(sentence, text) for text in said), (sentence, said)


@pytest.mark.notebook
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", sorted(OF_AN_OWN_STORE))
def test_a_notebook_on_a_store_without_consumers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder(1 << 16)
    for number in range(800):
        log.clock += 100_000
        log.message(topic=f"T{number % 40}", queue_id=0, body=b"b" * (number % 40), born_timestamp=log.clock - 1)
    said = run(name, tmp_path, monkeypatch, ROCKETMQ_STORE=str(log.write(tmp_path / "store")))
    assert any(re.search(OF_AN_OWN_STORE[name], text) for text in said), said


def run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[str]:
    """Returns what a notebook says; it has drawn what it is to draw."""
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    # A kernel is started as a person's is: a session in this process has put its own settings into the environment.
    for variable in ("ROCKETMQ_TABLE", "ROCKETMQ_STORE", "PYSPARK_SUBMIT_ARGS", "PYTHONSAFEPATH", "PYTHONPATH"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {"TMPDIR": str(tmp_path), **environment}.items():
        monkeypatch.setenv(variable, value)
    notebook = jupytext.read(NOTEBOOKS / f"{name}.py")
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOKS)}}
    ).execute()
    said = [" ".join(data["text/markdown"].split()) for data in outputs(notebook) if "text/markdown" in data]
    drawn = [base64.b64decode(data["image/png"]) for data in outputs(notebook) if "image/png" in data]
    keep_pictures(name, drawn)
    assert len(drawn) == FIGURES[name]
    assert all(len(picture) > 4_000 for picture in drawn)
    assert not [text for text in said if re.search(r"\bnan\b|NaT|None", text)]
    return said


def outputs(notebook: Any) -> list[dict[str, str]]:
    return [
        output["data"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type in ("display_data", "execute_result")
    ]


def keep_pictures(name: str, drawn: list[bytes]) -> None:
    """Writes the plots where a person asked for them: KEEP_PICTURES=directory."""
    if directory := os.environ.get("KEEP_PICTURES"):
        for number, picture in enumerate(drawn):
            Path(directory, f"{name}-{number}.png").write_bytes(picture)
