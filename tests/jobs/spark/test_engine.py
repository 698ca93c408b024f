"""Spark runs the tasks of each job that reads the log, however small that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import golden

from jobs.cli import command_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JOBS = {
    "inspect": [],
    "verify": ["--on-damage", "salvage"],
    "rebuild": ["--output", "{scratch}/built"],
    "load": ["--table", "{scratch}/messages", "--cluster", "c", "--broker", "b"],
    "query": ["--scan"],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack("base-clean-5.3.3", tmp_path_factory.mktemp("store"))


def jobs_of_spark(spark: SparkSession, name: str, arguments: list[str]) -> int:
    """Runs a command line; returns how many jobs Spark ran for it."""
    context = spark.sparkContext
    context.setJobGroup(name, name)
    try:
        assert command_line.main([*arguments, "--quiet"]) in (0, 1)
        return len(context.statusTracker().getJobIdsForGroup(name))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.parametrize("job", JOBS)
def test_tasks_run_in_spark(
    job: str, spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(scratch=tmp_path) for word in JOBS[job]]
    question = ["key", "--topic", "TopicTest", "--key", "none"] if job == "query" else []
    assert jobs_of_spark(spark, job, [job, *question, "--store", str(store), *given]) > 0
    assert capsys.readouterr().out
