"""The options of spark-submit before a job."""

from __future__ import annotations

import pytest

from jobs.cli.command_line import JOBS
from jobs.spark import options as spark_options
from storeformat import errors


class TestSplittingOffSparksOptions:
    @pytest.mark.parametrize(
        ("line", "options"),
        [
            ("rebuild --store demo", ""),
            ("--master local[2] rebuild --store S", "--master local[2]"),
            ("--name demo --conf spark.x=report -v rebuild", "--name demo --conf spark.x=report -v"),
            ("--master=yarn --deploy-mode client verify --store S", "--master=yarn --deploy-mode client"),
            ("-c a=b load", "-c a=b"),
            ("nonsense rebuild", ""),
            ("--help", ""),
            ("", ""),
        ],
    )
    def test_up_to_the_first_word_that_is_a_job_and_no_value(self, line: str, options: str) -> None:
        words = line.split()
        assert spark_options.split_command_line(words, JOBS) == (options.split(), words[len(options.split()) :])

    def test_an_unknown_option_before_the_job_is_named(self) -> None:
        for words in (["--store", "S", "rebuild"], ["-v", "--store=S", "rebuild"], ["--verbose=1", "rebuild"]):
            with pytest.raises(errors.UsageError) as error:
                spark_options.split_command_line(words, JOBS)
            word = next(word for word in words if word not in spark_options.SWITCHES)
            assert str(error.value) == f"{word} is not an option of spark-submit"
            assert error.value.advice == "options of a job come after its name"
        assert spark_options.split_command_line(["--store", "S"], JOBS) == ([], ["--store", "S"])
        assert spark_options.split_command_line(["--master"], JOBS) == (["--master"], [])

    @pytest.mark.parametrize(
        ("line", "values"),
        [
            ("--jars c --jars=d --name --conf", ["c", "d"]), ("--jars", []), ("--jarsx x --jarsa=b", []),
        ],
    )  # fmt: skip
    def test_values_of_options(self, line: str, values: list[str]) -> None:
        assert spark_options.values_of(line.split(), "--jars") == values


@pytest.mark.parametrize(
    ("master", "local"), [("local", True), ("local[*]", True), ("local-cluster[1,1,1]", False), ("yarn", False)]
)
def test_where_executors_are_threads(master: str, local: bool) -> None:
    assert spark_options.is_local(master) == local
