"""Output that cannot be shown changes no verdict, and is no defect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


@pytest.mark.parametrize("streams", ["2>&-", ">&- 2>&- <&-", ">/dev/full 2>/dev/full", "2>&1 >/dev/null | :"])
def test_a_refusal_stays_one(streams: str, tmp_path: Path) -> None:
    """Exit code 66, as with streams that work; the shell tells it by a file."""
    line = (
        f'{{ "{sys.executable}" -m jobs preflight --store "{tmp_path}/absent"; echo $? >"{tmp_path}/code"; }} {streams}'
    )
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (tmp_path / "code").read_text() == "66\n"
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(("streams", "code"), [(">/dev/full", 74), (">&-", 0), ("| :", 0), ("2>/dev/full", 0)])
def test_a_report_that_is_not_shown(streams: str, code: int, tmp_path: Path) -> None:
    program = (
        "from jobs.__main__ import *; from jobs.contract.report import Report; import jobs.preflight.preflight as p; "
    )
    program += (
        "p.run = lambda *given: (given[1].say('x' * 9000), Report('preflight', text=['y' * 9000]))[1]; sys.exit(main())"
    )
    words = "preflight --store /"
    line = f'{{ "{sys.executable}" -c "{program}" {words}; echo $? >"{tmp_path}/code"; }} {streams}'
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (tmp_path / "code").read_text() == f"{code}\n", done.stderr
    assert ("error: the report cannot be written: No space left on device (stdout)" in done.stderr) == (code == 74)
