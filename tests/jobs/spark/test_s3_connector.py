"""What Spark itself reads tables on S3 with: its jars, and what it is told of the place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.object_store import Bucket, serving
from support.store_builder import LogBuilder

from jobs.spark import launch
from jobs.spark.execution import Execution
from storeformat.errors import DependencyMissing, UsageError

ROOT = Path(__file__).resolve().parents[3]


def test_what_the_environment_says_reaches_hadoop() -> None:
    given = {"AWS_ENDPOINT_URL": "http://h:9000", "AWS_DEFAULT_REGION": "eu", "AWS_SECRET_ACCESS_KEY": "secret"}
    found = launch.s3_settings(given)
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://h:9000"
    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "eu"
    assert "secret" not in str(found)
    assert launch.s3_settings({}).keys() == {"spark.hadoop.fs.s3.impl"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"AWS_ENDPOINT_URL_S3": "http://s3", "AWS_ENDPOINT_URL": "http://h"}, {"endpoint": "http://s3"}),
        ({"AWS_ENDPOINT_URL": "http://h"}, {"endpoint": "http://h"}),
        ({"AWS_REGION": "eu", "AWS_DEFAULT_REGION": "us"}, {"endpoint.region": "eu"}),
        ({"AWS_DEFAULT_REGION": "us"}, {"endpoint.region": "us"}),
    ],
)
def test_each_setting_of_hadoop(given: dict[str, str], expected: dict[str, str]) -> None:
    settings = {f"spark.hadoop.fs.s3a.{name}": value for name, value in expected.items()}
    if "endpoint" in expected:
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    settings["spark.hadoop.fs.s3.impl"] = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    assert launch.s3_settings(given) == settings


class TestLaunch:
    @pytest.fixture(autouse=True)
    def _an_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.prefix", str(tmp_path))
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "delta-spark.jar").touch()

    def test_a_connector_that_is_missing_is_told(self) -> None:
        with pytest.raises(DependencyMissing, match="no S3 connector") as missing:
            launch.delta_options({}, {}, on_s3=True)
        assert "--setup --with s3" in (missing.value.advice or "")
        assert launch.delta_options({}, {})[-1].endswith("delta-spark.jar")

    def test_it_comes_beside_deltas_jars(self, tmp_path: Path) -> None:
        (tmp_path / "jars-s3").mkdir()
        (tmp_path / "jars-s3" / "hadoop-aws.jar").touch()
        settings: dict[str, str] = {}
        jars = launch.delta_options({"spark.jars": "own.jar"}, settings, on_s3=True)[-1].split(",")
        assert [Path(jar).name for jar in jars] == ["own.jar", "delta-spark.jar", "hadoop-aws.jar"]
        assert "spark.hadoop.fs.s3.impl" in settings

    def test_it_may_be_the_users(self) -> None:
        jars = launch.delta_options({"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}, {}, on_s3=True)[-1]
        assert jars.endswith("delta-spark.jar")

    def test_it_is_needed_where_spark_reads_a_table(self) -> None:
        assert launch._reads_s3(Execution("report", arguments=("report", "--table", "s3://b/t", "--checks")))
        assert launch._reads_s3(
            Execution("report", options=("--master", "yarn"), arguments=("report", "--table=s3a://b/t"))
        )
        assert not launch._reads_s3(
            Execution("report", arguments=("report", "--table", "/t", "--checks", "--csv", "s3://b/x"))
        )
        assert not launch._reads_s3(
            Execution("load", options=("--master", "yarn"), arguments=("load", "--table", "s3://b/t"))
        )

    def test_what_only_we_understand_is_refused(self) -> None:
        for uri in ("s3://key:secret@b/t", "s3://b/t?region=eu"):
            with pytest.raises(UsageError, match="from the environment alone"):
                launch._reads_s3(Execution("report", arguments=("report", f"--table={uri}", "--html", "x")))


@pytest.mark.spark
@pytest.mark.slow
def test_spark_loads_and_reads_a_table(tmp_path: Path) -> None:
    """Two loads of one broker and one of another, side by side, each with tasks in a Spark of its own; then Spark reads
    the table. What ``spark-submit.sh --setup --with s3`` brings is fetched where it is missing.
    """
    fetching = [str(ROOT / "spark-submit.sh"), "--setup", "--with", "s3"]
    given = {**os.environ, "ROCKETMQ_STORE_SPARK_VENV": sys.prefix}
    fetched = subprocess.run(fetching, env=given, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(fetched.stderr)
    log = LogBuilder(1 << 16)
    for number in range(300):
        log.message(topic=f"T{number % 3}", body=b"x" * 50, keys=f"k{number}")
    root = log.write(tmp_path / "store")
    table = ("--table", "s3://tables/t")
    with serving() as endpoint:
        bucket = Bucket(endpoint, "tables")
        bucket.client.create_bucket(Bucket=bucket.name)
        loads = [
            started(endpoint, "load", "--store", str(root), *table, "--cluster", "c", "--broker", broker)
            for broker in ("a", "a", "b")
        ]
        loaded = [reported(load) for load in loads]
        assert sorted(one["rows"] for one in loaded[:2]) == [0, 300]
        assert loaded[2]["rows"] == 300
        report = reported(started(endpoint, "report", *table, "--checks"))
    assert (report["messages"], bool(report["checks"])) == (600, True)


def started(endpoint: str, *words: str) -> subprocess.Popen[str]:
    given = {
        "AWS_ENDPOINT_URL": f"http://{endpoint}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    quick = ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    line = [sys.executable, str(ROOT / "jobs" / "__main__.py"), "--master", "local[1]", *quick, *words, "--json"]
    return subprocess.Popen(
        line, env={**os.environ, **given}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def reported(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, complaint = process.communicate()
    assert process.returncode == 0, complaint
    found: dict[str, Any] = json.loads(said)
    return found
