"""What tests of all folders share."""

from __future__ import annotations

import ast
import hashlib
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
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

# The same examples in each run, which is never red by chance. `.ci/release long` draws others by its seed, and more.
# Machines that build are slow at times; a slow example is no failure.
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.register_profile("few", deadline=None, derandomize=True, max_examples=10)
hypothesis.settings.register_profile("many", deadline=None, max_examples=500)
hypothesis.settings.load_profile("fixed")

QUICK = (
    "spark.sql.shuffle.partitions=2",
    "spark.databricks.delta.snapshotPartitions=2",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "spark.sql.adaptive.enabled=false",
    "spark.ui.enabled=false",
)
"""Settings of Spark for tables of a few rows: few tasks for each step, and plans that are interpreted, not compiled."""


RELEASE_MARKS = frozenset({"realstore", "broker", "hadoop", "servers", "notebook", "browser", "benchmark", "slow"})
"""What `.ci/run` leaves to `.ci/release`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", help="run files, and tests within one, in an order drawn by SEED")


@pytest.hookimpl(tryfirst=True)  # what shares a fixture is brought together after this
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what is for ``.ci/release`` and what older releases repeat. What shares the Spark session comes first, then
    files that start Spark, so that processes that share tests out end at the same time.
    """
    newest = golden.newest_of_each_scenario()
    for item in items:
        given = getattr(item, "callspec", None)
        values = given.params.values() if given else ()
        if any(isinstance(value, golden.GoldenStore) and value not in newest for value in values):
            item.add_marker("thorough")
        marks = {mark.name for mark in item.iter_markers()}
        if hasattr(getattr(item, "function", None), "hypothesis"):
            item.add_marker("property")
        if marks & RELEASE_MARKS:
            item.add_marker("release")
    heavy = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: ("spark" not in getattr(item, "fixturenames", ()), item.path not in heavy))
    if seed := config.getoption("--shuffle"):
        drawn: dict[str, str] = {}

        def place(name: str) -> str:
            return drawn.setdefault(name, hashlib.sha256(f"{seed}{name}".encode()).hexdigest())

        items.sort(key=lambda item: (place(str(item.path)), place(item.nodeid.partition("[")[0])))


@cache
def sharing_spark(file: Path) -> frozenset[str]:
    """The functions of a file that ask for the Spark session, or for a fixture of the file that does."""
    asked: dict[str, set[str]] = defaultdict(set)
    for one in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(one, ast.FunctionDef):
            named = [
                node.value for marks in one.decorator_list for node in ast.walk(marks) if type(node) is ast.Constant
            ]
            asked[one.name] |= {argument.arg for argument in one.args.args}.union(named)
    found = {"spark"}
    while more := {name for name, names in asked.items() if names & found} - found:
        found |= more
    return frozenset(found)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file stays together; tests that share the Spark session run in one process, whatever their file."""
    from xdist.scheduler import LoadFileScheduling

    class OneSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            function = nodeid.partition("[")[0].rpartition("::")[2]
            return "spark" if function in sharing_spark(config.rootpath / file) else file

    return OneSession(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run, with Delta, as the command line would start it."""
    if not any(Path(sys.prefix, "jars").glob("delta-spark*.jar")):
        pytest.skip("Delta's jars are not there: ./spark-submit.sh sets them up")
    from jobs.spark import session

    options = ["--master", "local[2]", *(word for setting in QUICK for word in ("--conf", setting))]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "PYTHONPATH", "SPARK_SUBMIT_OPTS"):
            patch.delenv(name, raising=False)
        started = session.Spark("load", options)
        started.begin(delta=True)
        try:
            yield started.session
        finally:
            started.end(running=False)


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    """Runs jobs that a fault meets at a change of the disk."""
    from support.killing import Killer

    with Killer() as running:
        yield running


@pytest.fixture(params=["numpy", "numba"])
def each_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With numpy alone, and with what is compiled."""
    from storeformat.kernels import compiled

    if request.param == "numba":
        pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)
    monkeypatch.setenv("ROCKETMQ_STORE_SPARK_KERNELS", request.param)
    compiled.cache_clear()
    assert (request.param == "numba") == (compiled() is not None)
    yield
    compiled.cache_clear()
