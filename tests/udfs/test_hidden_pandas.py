"""pyarrow does without pandas where it is hidden, and pandas can be imported once it is shown again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from udfs.worker_daemon import ROWS

SCRIPT = """
import sys
from udfs import hidden_pandas
hidden_pandas.hide()
import numpy as np, pyarrow as pa
assert pa.array([1, None]).to_pylist() + pa.array(np.arange(2)).to_pylist() == [1, None, 0, 1]
assert "pandas" not in sys.modules
hidden_pandas.show()
import pandas
hidden_pandas.show()
"""


def test_hidden_until_it_is_shown() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)


@pytest.mark.parametrize("rows", ["0", "1"])
def test_workers_of_our_tasks_import_no_pandas_and_a_session_of_ones_own_may(rows: str) -> None:
    script = (
        "import sys\nfrom udfs.worker_daemon import prepared\nprepared()\n"
        "import pyarrow as pa\npa.array([None])\nassert 'pandas' not in sys.modules\nimport pandas"
    )
    subprocess.run([sys.executable, "-c", script], env={**os.environ, ROWS: rows}, check=True, timeout=120)
