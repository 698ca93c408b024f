"""What a user tells Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.cli.command_line import JOBS
from jobs.spark import spark_options
from storeformat import errors


@pytest.fixture(autouse=True)
def _nothing_of_spark_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_CONF_DIR", "MASTER"):
        monkeypatch.delenv(name, raising=False)


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
            ("-c a=b --conf c=d --conf=e=f --name --conf", ["a=b", "c=d", "e=f"]),
            ("--conf", []), ("-c", []), ("--config x --confa=b", []), ("--conf= -c=", ["", ""]),
        ],
    )  # fmt: skip
    def test_values_of_options(self, line: str, values: list[str]) -> None:
        assert spark_options.values_of(line.split(), "--conf", "-c") == values


class TestUserSettings:
    def test_a_properties_file_of_the_user_wins_over_ours(self, tmp_path: Path) -> None:
        (tmp_path / "mine.conf").write_text("# a comment\nspark.ui.enabled true\nspark.master=local[3]\n")
        chosen = spark_options.user_settings(["--properties-file", str(tmp_path / "mine.conf"), "--master", "local[1]"])
        assert chosen == {"spark.ui.enabled": "true", "spark.master": "local[1]"}

    def test_a_properties_file_is_read_as_java_does(self, tmp_path: Path) -> None:
        (tmp_path / "mine.conf").write_text(
            "spark.driver.extraJavaOptions  -Dx=1 -Dy=2\nspark.jars s3://b/day=1/y.jar\nspark.a=b=c \nspark.b : d e\n"
            "! a comment\n#spark.c f\nspark.empty\nspark.none =\n\n"
        )
        assert spark_options.user_settings(["--properties-file", str(tmp_path / "mine.conf")]) == {
            "spark.driver.extraJavaOptions": "-Dx=1 -Dy=2",
            "spark.jars": "s3://b/day=1/y.jar",
            "spark.a": "b=c",
            "spark.b": "d e",
        }

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (["--conf", "nonsense"], "--conf nonsense: this is not name=value"),
            (["-c", "=x"], "--conf =x: this is not name=value"),
            (["--master", ""], "--master has an empty value"),
            (["--jars= "], "--jars has an empty value"),
            (["--properties-file", "absent"], "there is no such properties file (absent)"),
        ],
    )
    def test_what_spark_submit_would_answer_with_a_trace(
        self, options: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises((errors.UsageError, errors.MissingInput)) as error:
            spark_options.user_settings(options)
        assert str(error.value) == text

    def test_options_stand_above_settings_and_both_above_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MASTER", "local[7]")
        assert spark_options.user_settings([]) == {"spark.master": "local[7]"}
        assert spark_options.user_settings(["--conf", "spark.master=local[6]"]) == {"spark.master": "local[6]"}
        words = ["--conf", "spark.master=local[6]", "--conf", "spark.empty=", "--master", "a", "--master", "b"]
        assert spark_options.user_settings(words) == {"spark.master": "b", "spark.empty": ""}
        for option, name in spark_options.SETTING_OF_OPTION.items():
            assert spark_options.user_settings([option, "x"])[name] == "x"

    @pytest.mark.parametrize(
        ("master", "local"), [("local", True), ("local[*]", True), ("local-cluster[1,1,1]", False), ("yarn", False)]
    )
    def test_where_executors_are_threads(self, master: str, local: bool) -> None:
        assert spark_options.is_local(master) == local

    def test_the_users_conf_directory_is_read_unless_a_properties_file_replaces_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "spark-defaults.conf").write_text("spark.master  yarn\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        (tmp_path / "other.conf").write_text("spark.a b c\n")
        assert spark_options.user_settings([]) == {"spark.master": "yarn"}
        other = ["--properties-file", str(tmp_path / "other.conf")]
        assert spark_options.user_settings(other) == {"spark.a": "b c"}
        assert spark_options.user_settings([*other, "--load-spark-defaults"]) == {
            "spark.master": "yarn",
            "spark.a": "b c",
        }
