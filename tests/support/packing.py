"""The archive of Python packages for executors, written by ``spark-submit.sh --pack``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST_TOOLS = (
    "*mypyc*", "IPython", "PIL", "boto*", "cfnlint", "cryptography*", "debugpy*", "fake_gcs*", "fontTools", "grimp",
    "hypothesis*", "jedi*", "jsonschema*", "jupyter*", "kiwisolver*", "libcst", "matplotlib*", "moto", "mypy*",
    "networkx", "notebook*", "openapi*", "pillow*", "pip", "pygments", "setuptools", "sympy",
)  # fmt: skip
"""The largest packages of the environment of the tests that no executor needs."""


def pack(target: Path) -> None:
    """Write the archive from the environment that runs the tests."""
    exclude = " ".join(f"--exclude=site-packages/{name}" for name in TEST_TOOLS)
    environment = {**os.environ, "ROCKETMQ_STORE_SPARK_VENV": sys.prefix, "TAR_OPTIONS": exclude}
    subprocess.run([str(ROOT / "spark-submit.sh"), "--pack", str(target)], env=environment, check=True)
