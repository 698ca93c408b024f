"""Schedules and pinned requirements."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from jobs.cli.command_line import JOBS, parse, split_command_line

# ------------------------------------------------------------------------------------------------------------ schedules
CONF = Path(__file__).resolve().parents[2] / "conf"
SCRIPT = "/opt/rocketmq-store-spark/spark-submit.sh"


def commands() -> list[str]:
    """Everything from the script's name on, in all of the files."""
    files = [*sorted((CONF / "systemd").iterdir()), CONF / "crontab.example"]
    lines = (line for path in files for line in path.read_text().splitlines() if not line.startswith("#"))
    return [line.split(SCRIPT, 1)[1].split(">>")[0] for line in lines if SCRIPT in line]


@pytest.mark.parametrize("command", commands())
def test_commands_are_right(command: str) -> None:
    options, words = split_command_line(shlex.split(command), JOBS)
    assert parse(words, JOBS)[0] in ("load", "preflight")
    assert options in ([], ["--master", "local[2]"])


AIRFLOW = ("apache-airflow-core>=3.1,<4", "apache-airflow-providers-standard>=1,<2")
DAG_FACTS = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("dag", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
dag = module.load.dag
print(json.dumps({
    "id": dag.dag_id, "schedule": dag.schedule,
    "tasks": {name: task.bash_command for name, task in dag.task_dict.items()},
    "after_load": sorted(module.load.downstream_task_ids), "retries": module.load.retries,
}))
"""


def dag_facts(python: Path, home: Path) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", DAG_FACTS, CONF / "airflow" / "rocketmq_store.py"],
        check=True, capture_output=True, text=True, timeout=300, env={**os.environ, "AIRFLOW_HOME": str(home)},
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_airflow_takes_the_dag(tmp_path: Path) -> None:
    """Airflow comes from the package index, into an environment of its own: 300 MB, two minutes."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "airflow"], check=True)
    python = tmp_path / "airflow" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *AIRFLOW], check=True)
    facts = dag_facts(python, tmp_path / "home")
    assert (facts["id"], facts["schedule"], facts["after_load"]) == ("rocketmq_store", "30 2 * * *", ["verify"])
    for name, line in facts["tasks"].items():
        words = shlex.split(line)
        assert words[0] == SCRIPT
        options, rest = split_command_line(words[1:], JOBS)
        assert (options, parse(rest, JOBS)[0]) == (["--master", "local[2]"], name)


def test_all_are_tried() -> None:
    assert len(commands()) == 3


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Programs and users of another machine are put in place of those that are not here."""
    for path in (CONF / "systemd").iterdir():
        text = path.read_text().replace(SCRIPT, "/bin/true").replace("User=rocketmq\n", "")
        (tmp_path / path.name).write_text(text)
    broker = tmp_path / "rocketmq-broker.service"
    broker.write_text("[Service]\nExecStart=/bin/true\n")
    drop_in = tmp_path / "rocketmq-broker.service.d"
    drop_in.mkdir()
    (tmp_path / "rocketmq-broker-preflight.conf").rename(drop_in / "preflight.conf")
    units = [
        str(tmp_path / name) for name in ("rocketmq-load.service", "rocketmq-load.timer", "rocketmq-broker.service")
    ]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], check=False, capture_output=True, text=True, timeout=60
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "rocketmq" in line]
    assert (done.returncode, said) == (0, []), done.stderr


# --------------------------------------------------------------------------------------------------------- requirements
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "conf" / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FILES = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def test_each_package_has_one_version_a_python_and_a_hash() -> None:
    for name in FILES:
        for package in re.split(r"\n(?=\S)", (REQUIREMENTS / f"{name}.txt").read_text()):
            if not package.startswith(("#", "-r ")):
                first, *rest = package.replace("\\\n", "\n").split("\n")
                assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .*)? ?", first), first
                hashes = [line for line in rest if line]
                assert hashes
                assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64} ?", line) for line in hashes), first


def files_of(extra: str) -> set[str]:
    named = re.findall(r"^-r (\w+)\.txt$", (REQUIREMENTS / f"{extra}.txt").read_text(), re.MULTILINE)
    return {extra, "build", "setup", "fast"}.union(*(files_of(one) for one in named))


@pytest.mark.parametrize("extra", FILES)
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_they_are_what_the_project_asks_for(extra: str, python: str) -> None:
    optional = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *optional["fast"], *optional.get(extra, ())]
    text = "\n".join((REQUIREMENTS / f"{one}.txt").read_text() for one in files_of(extra))
    there: dict[str, set[str]] = {}
    for line in re.findall(r"^[\w.-]+==.*", text, re.MULTILINE):
        package = Requirement(line.rstrip(" \\"))
        if package.marker is None or package.marker.evaluate(
            {"python_version": python, "python_full_version": f"{python}.9"}
        ):
            there.setdefault(package.name, set()).add(str(package.specifier).removeprefix("=="))
    assert {name: versions for name, versions in there.items() if len(versions) > 1} == {}
    for one in map(Requirement, asked):
        if one.name == PROJECT["name"]:
            continue  # an extra that names others: their files are named in this one's
        (version,) = there[one.name]
        assert one.specifier.contains(version), (one, version)


def test_deltas_jars_are_of_the_pinned_versions() -> None:
    pinned = dict(line.split("==") for line in PROJECT["dependencies"] if "==" in line)
    spark = ".".join(pinned["pyspark"].split(".")[:2])
    version = pinned["delta-spark"]
    sums = (ROOT / "conf" / "delta-jars.sha256").read_text()
    assert re.findall(r"^[0-9a-f]{64}  (io/delta/delta-spark\S+)$", sums, re.MULTILINE) == [
        f"io/delta/delta-spark_{spark}_2.13/{version}/delta-spark_{spark}_2.13-{version}.jar"
    ]
    assert set(re.findall(r"io/delta/\S+?/([\d.]+)/", sums)) == {version}
