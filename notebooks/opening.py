"""Which messages the notebooks look at: yours, if the environment names them, else those of a bundled store.

===================  ===============================================================================================
``ROCKETMQ_TABLE``   a Delta table that ``load`` filled (with bodies, for transactions and traces)
``ROCKETMQ_STORE``   a broker's storePathRootDir, read as it is; ``ROCKETMQ_SETTINGS`` may hold ``name=value,...``
===================  ===============================================================================================

A trace that ends with BrokenPipeError is harmless: a minute after it planned a query, Spark 4.2.0 ends the Python
processes that planned it, and each prints one.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from pyspark.sql import DataFrame, SparkSession

from jobs.report import views
from jobs.spark import launch
from jobs.table import datasource
from storeformat.storage import files

# Archive, settings of the broker that wrote it, and its name.
SHOP = (
    HERE / "shop" / "shop-5.3.3.tar.gz",
    "maxHashSlotNum=500,maxIndexNum=2000,messageDelayLevel=1s 2s 2s 3s 4s 6s 8s 10s 15s 20s 30s 1m",
    "shop-a",
)
SIX_DAYS = (
    HERE.parent / "jobs" / "demo_store" / "base-larger-5.3.3.tar.gz",
    "maxHashSlotNum=500,maxIndexNum=2000",
    "broker-a",
)


def open_messages(bundled: tuple[Path, str, str]) -> SparkSession:
    """Returns a session in which ``messages`` and the views over it are there."""
    table, root = os.environ.get("ROCKETMQ_TABLE"), os.environ.get("ROCKETMQ_STORE")
    launch.prepare(delta=table is not None)
    warehouse = tempfile.mkdtemp(prefix="rocketmq-notebook-")  # nobody uses it, and Spark would make it here
    spark = SparkSession.builder.appName("notebook").config("spark.sql.warehouse.dir", warehouse).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    if table:
        messages = spark.read.format("delta").load(table)
    elif root:
        messages = read_store(spark, root, os.environ.get("ROCKETMQ_SETTINGS", ""), "broker")
        views.fit_session(spark, bytes_of(root))
    else:
        archive, settings, broker = bundled
        work = tempfile.mkdtemp(prefix="rocketmq-notebook-")
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.10.12 and 3.11.4 brought it
            packed.extractall(work)
        store = str(next(Path(work).iterdir()))
        messages = read_store(spark, store, settings, broker).cache()
        views.fit_session(spark, bytes_of(store))
    views.register(spark, messages)
    return spark


def bytes_of(root: str) -> int:
    """Returns how large a store's commit log is; a table of its messages would have a tenth of it."""
    return sum(entry.size for entry in files.list_directory(f"{root}/commitlog") or []) // 10


def read_store(spark: SparkSession, root: str, settings: str, broker: str) -> DataFrame:
    """Returns the messages of a commit log, bodies included, without any table."""
    datasource.register(spark)
    reader = spark.read.format(datasource.FORMAT).option("with-bodies", "true").option("settings", settings)
    return reader.option("cluster", "cluster").option("broker", broker).load(root)
