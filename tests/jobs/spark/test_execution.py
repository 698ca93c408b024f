"""How a job executes, as its command line says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jobs.spark import execution as executions
from jobs.spark.execution import Execution


@pytest.mark.parametrize(
    ("options", "one_machine"),
    [
        ((), True),
        (("--master", "local-cluster[1,1,1024]"), True),
        (("--master", "spark://h:1"), False),
    ],
)
def test_what_the_options_of_spark_say(
    options: tuple[str, ...], one_machine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MASTER", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setattr(executions, "active_context", lambda: None)
    execution = Execution("load", options=options)
    assert execution.on_one_machine == one_machine
    monkeypatch.setattr("jobs.spark.execution.STARTED_BY_SPARK", True)
    assert not execution.on_one_machine, "a driver on a cluster"


@pytest.mark.parametrize(("master", "one"), [("local[2]", True), ("local-cluster[1,1,1]", True), ("yarn", False)])
def test_a_context_that_is_there_says_where_tasks_run(master: str, one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "active_context", lambda: SimpleNamespace(master=master))
    assert Execution(options=("--master", "spark://h:1")).on_one_machine is one


def test_what_the_user_chose_is_no_default() -> None:
    chosen = Execution(options=("--conf", "spark.ui.enabled=true", "--master", "local[3]"))
    assert chosen.chosen == {"spark.ui.enabled": "true", "spark.master": "local[3]"}
    assert not chosen.settings.keys() & chosen.chosen.keys()
    assert chosen.settings["spark.sql.session.timeZone"] == "UTC"
    assert (chosen.master, Execution(options=()).settings.get("spark.master")) == ("local[3]", "local[*]")


def test_a_session_of_no_job_may_last() -> None:
    short = [one.is_short for one in (Execution("load"), Execution("load", lasts=True), Execution())]
    assert short == [True, False, False]
