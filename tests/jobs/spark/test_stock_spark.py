"""Spark's own spark-submit starts jobs, as README says: from anywhere, with a zip of this program and one file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import golden
from support.golden_differences import index_differences, queue_differences

from jobs.spark.launch import spark_home

ROOT = Path(__file__).resolve().parents[3]
QUICK = ("--conf", "spark.ui.enabled=false", "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.mark.spark
@pytest.mark.golden
@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,1024]"])
def test_a_rebuild(master: str, tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store)
    place = tmp_path / "empty"
    place.mkdir()
    zipfile.main(
        ["-c", str(place / "rocketmq-store-spark.zip"), *(str(ROOT / name) for name in ("jobs", "storeformat", "udfs"))]
    )
    shutil.copy(ROOT / "jobs" / "__main__.py", place / "main.py")
    hidden = ("PYSPARK_", "PYTHON", "SPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    line = [
        str(spark_home() / "bin" / "spark-submit"), "--master", master, *QUICK,
        "--py-files", "rocketmq-store-spark.zip", "main.py",
        "rebuild", "--store", str(root), "--output", str(tmp_path / "out"), "--report", "report.json",
    ]  # fmt: skip
    done = subprocess.run(
        line,
        env={**environment, "PYSPARK_PYTHON": sys.executable},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((place / "report.json").read_text())["messages"] == store.entry["counts"]["messages"]
    differences = queue_differences(root, tmp_path / "out", store) + index_differences(root, tmp_path / "out", store)
    assert differences == []
