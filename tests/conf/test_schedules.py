"""Units and cron lines: systemd takes them, and the commands in them are right."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.command_line import JOBS, parse, split_command_line

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
