"""The archive of Python packages for executors, as ``spark-submit.sh --pack`` writes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def pack(target: Path) -> None:
    """Writes the archive from the environment that runs the tests."""
    environment = {**os.environ, "ROCKETMQ_STORE_SPARK_VENV": sys.prefix}
    subprocess.run([str(ROOT / "spark-submit.sh"), "--pack", str(target)], env=environment, check=True)
