"""``demo``: rebuild a bundled store, compare the files with the broker's own, and load the messages into a table."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from jobs.contract.options import DemoOptions, LoadOptions, RebuildOptions
from jobs.contract.report import Report, Reporter, size_text
from jobs.log.opening import open_store
from jobs.rebuild.build_store import Built, rebuild, staging_beside
from jobs.report import views
from jobs.report import views as table_facts
from jobs.spark import session
from jobs.table import messages_table
from jobs.table.load import Load
from storeformat.storage import files
from storeformat.store.layout import CONSUME_QUEUE, INDEX

_TOPICS_SHOWN = 5
_DATA = resources.files("jobs") / "demo_store"


def run(options: DemoOptions, reporter: Reporter) -> Report:
    """Rebuild, load and compare the bundled store."""
    about = json.loads((_DATA / "store.json").read_text(encoding="utf-8"))
    with _workplace(options) as work:
        root = _unpack(about, work)
        settings = tuple((name, str(value)) for name, value in about["settings"].items())
        rebuild_options = RebuildOptions(
            store=str(root / "lost"), output=str(work / "rebuilt"), settings=settings, split_size=64 << 10
        )
        load_options = LoadOptions(
            store=str(root / "lost"), table=str(work / "messages"), settings=settings, cluster="demo", broker="broker-a"
        )
        reporter.say(f"unpacked the store of a RocketMQ {about['rocketmq']} broker; rebuilding it from its log alone")
        store = open_store(rebuild_options)
        with (
            staging_beside(rebuild_options.output) as staging,
            session.runner_for(reporter, "rebuild", store.log_size) as runner,
        ):
            built = rebuild(rebuild_options, store, staging, runner)
            files.rename(built.directory, rebuild_options.output)
        reporter.say("loading its messages into a Delta table")
        with session.shared_spark():
            Load(store, load_options, load_options.table, reporter).run()
        table = messages_table.open_table(load_options.table)
        assert table is not None, "the table that was just made"
        with session.spark_session() as started:
            spark = views.over_table(started, table, views.of_report("topic", checks=False, plots=False))
            facts = table_facts.measure(spark, "topic", checks=False)
        compared = {
            CONSUME_QUEUE: compare_queue_files(root / "original", work / "rebuilt"),
            INDEX: compare_index_files(root / "original", work / "rebuilt"),
        }
    return _report(options, about, built, compared, facts, reporter)


@contextmanager
def _workplace(options: DemoOptions) -> Iterator[Path]:
    if options.output is not None:
        path = Path(files.resolved(options.output))
        files.refuse_used_directory(str(path))
        files.make_directory(str(path))
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="rocketmq-store-spark-demo-") as temporary:
        yield Path(temporary)


def _unpack(about: dict[str, Any], work: Path) -> Path:
    with resources.as_file(_DATA / f"{about['name']}.tar.gz") as archive, tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.10.12 and 3.11.4 brought it
        packed.extractall(work)
    root = work / "store"
    root.mkdir()
    (work / about["name"]).rename(root / "original")
    shutil.copytree(root / "original" / "commitlog", root / "lost" / "commitlog")
    return root


def compare_queue_files(original: Path, rebuilt: Path) -> tuple[int, int]:
    """Number of consume-queue files on either side, and of identical ones."""
    sides = [
        {path.relative_to(root).as_posix(): path for path in (root / CONSUME_QUEUE).rglob("*") if path.is_file()}
        for root in (original, rebuilt)
    ]
    same = sum(sides[0][name].read_bytes() == sides[1][name].read_bytes() for name in sides[0].keys() & sides[1].keys())
    return len(sides[0].keys() | sides[1].keys()), same


def compare_index_files(original: Path, rebuilt: Path) -> tuple[int, int]:
    """The same for index files, paired in order of name because the names are the broker's wall clock."""
    theirs, ours = (sorted((root / INDEX).iterdir()) for root in (original, rebuilt))
    same = sum(one.read_bytes() == other.read_bytes() for one, other in zip(theirs, ours, strict=False))
    return max(len(theirs), len(ours)), same


def _report(
    options: DemoOptions,
    about: dict[str, Any],
    built: Built,
    compared: dict[str, tuple[int, int]],
    facts: table_facts.Facts,
    reporter: Reporter,
) -> Report:
    reading = built.reading
    identical = all(total == same for total, same in compared.values()) and facts.messages == reading.records
    queues, index = compared[CONSUME_QUEUE], compared[INDEX]
    text = f"""\
A real Apache RocketMQ {about["rocketmq"]} broker wrote this store: {reading.records:,} messages, \
{len(reading.segments)} segments, {size_text(reading.end - reading.begin)} of commit log.
Its consume queues and index files were set aside and rebuilt from the commit log alone, in parallel, with Spark:

  consume queues  {queues[1]} of {queues[0]} files identical with the broker's own, byte for byte
  index files     {index[1]} of {index[0]} files identical with the broker's own, byte for byte
  accounted for   every byte of the log: {reading.record_bytes:,} in messages, {reading.blank_bytes:,} in blanks, \
{reading.unwritten_bytes:,} unwritten, {sum(r.end - r.begin for r in reading.damaged)} damaged

Its messages are rows of a Delta table now; asked what fills the disk, it says:

""".splitlines()
    text += [f"  {line}".rstrip() for line in table_facts.to_lines(facts, _TOPICS_SHOWN)]
    if options.output is not None:
        text += ["", f"In {options.output}: rebuilt/, the broker's own files in store/original/, the table messages/."]
    text += ["", "Your own store:  ./spark-submit.sh rebuild --store ROOT --output DIR   (it only reads ROOT)"]
    return reporter.report(
        "demo",
        differs=not identical,
        text=text,
        broker=about["rocketmq"],
        **reading.facts(),
        consume_queue_files=queues[0],
        consume_queue_files_identical=queues[1],
        index_files=index[0],
        index_files_identical=index[1],
        rows=facts.messages,
    )
