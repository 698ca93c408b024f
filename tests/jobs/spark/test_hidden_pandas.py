"""pyarrow does without pandas where it is hidden, and pandas can be imported once it is shown again."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from jobs.spark import hidden_pandas
hidden_pandas.hide()
import numpy as np, pyarrow as pa
assert pa.array([1, None]).to_pylist() + pa.array(np.arange(2)).to_pylist() == [1, None, 0, 1]
assert "pandas" not in sys.modules
hidden_pandas.show()
import pandas
hidden_pandas.show()
"""


def test_hidden_until_it_is_shown() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)
