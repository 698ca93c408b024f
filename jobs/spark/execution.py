"""How a job executes: one value, made once from the command line and handed down.

Whoever brings a SparkSession of their own (a notebook, a scheduler, tests) needs none: jobs take ``BROUGHT`` then, and
find the context that is active.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jobs.spark import spark_options


@dataclass(frozen=True)
class Execution:
    """What the command line says of Spark. ``options`` are those of spark-submit, ``arguments`` are the job's own,
    from its name on; ``delta`` brings Delta's jars; ``lasts`` says that the JVM has work for minutes.
    """

    job: str = ""
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    delta: bool = False
    lasts: bool = False
    debug: bool = False

    @cached_property
    def chosen(self) -> dict[str, str]:
        """The settings of Spark that the user made; raises as ``user_settings``."""
        return spark_options.user_settings(self.options)

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings of Spark where the user made no choice."""
        file = spark_options.CONF / "spark-defaults.conf"
        defaults = spark_options.read_properties(file) if file.is_file() else {"spark.master": "local[*]"}
        return {name: value for name, value in defaults.items() if name not in self.chosen}

    @property
    def master(self) -> str:
        """Where tasks run, as Spark names it."""
        return self.chosen.get("spark.master") or self.settings["spark.master"]

    @property
    def on_one_machine(self) -> bool:
        """Whether all tasks run on the driver's machine."""
        context = active_context()
        if context is not None:
            return bool(context.master.startswith("local"))
        return not STARTED_BY_SPARK and self.master.startswith("local")

    @property
    def is_short(self) -> bool:
        """Whether a JVM that never leaves its fast compiler is done sooner; a session of no job may last."""
        return bool(self.job) and not self.lasts


STARTED_BY_SPARK = "PYSPARK_GATEWAY_PORT" in os.environ
"""Whether spark-submit started this program, as it does with ``--deploy-mode cluster``: all has been decided then."""

BROUGHT = Execution()
"""Of a program that brings its own Spark; where it has none, one starts with this program's defaults."""


def active_context() -> Any:
    """Returns the SparkContext that is active in this process, or None."""
    pyspark = sys.modules.get("pyspark")
    return pyspark.SparkContext._active_spark_context if pyspark is not None else None
