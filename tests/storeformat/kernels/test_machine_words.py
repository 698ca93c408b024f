"""Reads of several bytes at once, and the check that none of them leaves a buffer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)

ROOT = Path(__file__).parents[3]
CHECKED = [
    str(Path(__file__).with_name(f"test_{name}.py"))
    for name in (
        "numba_records",
        "numba_values",
        "numba_dispatch",
        "numpy_kernels",
        "numpy_walks",
        "numba_crc",
        "machine_words",
    )
] + [str(Path(__file__).parents[1] / "record" / "test_plain_dispatch.py")]


@pytest.mark.skipif("MUTANT_UNDER_TEST" in os.environ, reason="mutants work in their own process alone")
@pytest.mark.parametrize(
    "examples", [pytest.param("few", marks=pytest.mark.thorough), pytest.param("patient", marks=pytest.mark.slow)]
)
def test_a_kernel_that_reads_outside_is_caught_by_bounds_checks(examples: str) -> None:
    """The tests of the compiled kernels once more, every read checked; by default with few examples each."""
    if os.environ.get("NUMBA_BOUNDSCHECK"):
        from storeformat.kernels import machine_words

        assert machine_words.CHECKED
        with pytest.raises(IndexError, match="outside"):
            machine_words.load64(machine_words.memory(np.zeros(16, np.uint8)), 9)
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"NUMBA_BOUNDSCHECK": "1", "ROCKETMQ_STORE_SPARK_KERNELS": "numba"}
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--hypothesis-profile={examples}",
         "-k", "agree and not real_logs or 5.5.0 or outside" if examples == "few" else "", *CHECKED],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout[-4000:]
    assert " passed" in again.stdout
