"""Which engine runs the tasks of each job that reads the log: Spark, unless the command line says otherwise."""

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
@pytest.mark.parametrize("engine", ["spark", "processes"])
def test_tasks_run_in_spark_unless_the_command_line_says_otherwise(
    job: str, engine: str, spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(scratch=tmp_path) for word in JOBS[job]]
    given += [] if engine == "spark" else ["--engine", engine]
    question = ["key", "--topic", "TopicTest", "--key", "none"] if job == "query" else []
    ran = jobs_of_spark(spark, f"{job} on {engine}", [job, *question, "--store", str(store), *given])
    assert (ran > 0) == (engine == "spark")
    assert capsys.readouterr().out
