"""What tests of all folders share."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from support import golden

if TYPE_CHECKING:  # the fast tests run without pyspark
    from pyspark.sql import SparkSession
    from support.killing import Killer

# A shell without job control starts what runs in its background with Ctrl-C ignored, and so do all processes that tests
# start: there some wait for it in vain.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines that build are slow at times; a slow example is no failure.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.register_profile("few", deadline=None, max_examples=10)
hypothesis.settings.load_profile("patient")

_RELEASE = re.compile(r"\d+\.\d+\.\d+")

QUICK = (
    "spark.sql.shuffle.partitions=2",
    "spark.databricks.delta.snapshotPartitions=2",
)
"""Settings of Spark for tables of a few rows: few tasks for each step."""


RELEASES_OF_EACH_DAY = frozenset({"4.9.8", "5.5.0"})
"""Real brokers of the other releases judge before a release of this program."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what says of an older release what it says of the newest, too: the fast tests leave it out, and with a real
    broker it is a judge. Where processes share tests out, they run in an order that keeps cores busy.
    """
    if hasattr(config, "workerinput"):  # one of pytest-xdist's
        from support.scheduling import spread

        items[:] = spread(items)
    newest = golden.newest_of_each_scenario()
    for item in items:
        given = getattr(item, "callspec", None)
        store = given.params.get("store") if given else None
        if isinstance(store, golden.GoldenStore) and store not in newest:
            item.add_marker("thorough")
        if given and (item.get_closest_marker("realstore") or item.get_closest_marker("broker")):
            texts = [value for value in given.params.values() if isinstance(value, str)]
            releases = set(filter(_RELEASE.fullmatch, texts))
            if releases and not releases & RELEASES_OF_EACH_DAY and not item.get_closest_marker("slow"):
                item.add_marker("judge")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Returns how ``--dist loadfile`` shares tests out."""
    if config.getvalue("dist") != "loadfile":
        return None
    from support.scheduling import LoadReleases

    return LoadReleases(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run, with Delta, as the command line would start it."""
    if not any(Path(sys.prefix, "jars").glob("delta-spark*.jar")):
        pytest.skip("Delta's jars are not there: ./spark-submit.sh sets them up")
    from jobs.spark import session
    from jobs.spark.execution import Execution

    options = ["--master", "local[2]", *(word for setting in QUICK for word in ("--conf", setting))]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "PYTHONPATH", "SPARK_SUBMIT_OPTS"):
            patch.delenv(name, raising=False)
        with session.spark_session(Execution("load", options=tuple(options), delta=True)) as found:
            yield found


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    """Runs jobs that a fault meets at a change of the disk."""
    from support.killing import Killer

    with Killer() as running:
        yield running


@pytest.fixture(params=["numpy", "numba"])
def each_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both implementations of the kernels, one after the other."""
    from storeformat.kernels import active

    if request.param == "numba":
        pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)
    monkeypatch.setenv("ROCKETMQ_STORE_SPARK_KERNELS", request.param)
    active.cache_clear()
    assert request.param == active().NAME
    yield
    active.cache_clear()
