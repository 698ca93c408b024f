"""``rebuild``, ``verify`` and ``preflight`` of a store in this process, without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.contract.options import RebuildOptions, VerifyOptions, narrow_to_queues
from jobs.log import opening
from jobs.preflight.preflight import safe_to_start
from jobs.preflight.stopped_store import Answer
from jobs.rebuild import build_store
from jobs.spark.runner import Runner
from jobs.verify import verify
from jobs.verify.differences import Verification
from storeformat.storage import files, locations
from storeformat.store.settings import Settings

SETTINGS = (
    "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "messageDelayLevel",
    "enableLmq", "enableMultiDispatch", "mapperFileSizeBatchConsumeQueue", "commitLogRecoverMaxNum",
    "enableConsumeQueueExt", "mappedFileSizeConsumeQueueExt", "storeType", "rocksdbCQDoubleWriteEnable",
    "useSeparateStorePathForRocksdbCQ",
)  # fmt: skip
RULES_OF_RELEASE = {
    "4.6": "4.6", "4.7.0": "4.6", "4.7": "4.8", "4.8": "4.8", "4.9.0": "4.8", "4.9": "4.9",
    "5.0": "5.0", "5.1.0": "5.0", "5.1": "5.1", "5.3": "5.3", "5.4": "5.5", "5.5": "5.5",
}  # fmt: skip


def options_for(store: Path | str, output: Path, settings: Mapping[str, Any], **more: Any) -> RebuildOptions:
    """The options of a rebuild with those settings of the store that the command line takes."""
    given = tuple((name, str(settings[name])) for name in SETTINGS if name in settings)
    more.setdefault("batch_topics", tuple(settings.get("batch_topics", ())))
    return RebuildOptions(store=str(store), output=str(output), settings=given, **more)


def rebuild_here(
    store: Path | str,
    work: Path,
    settings: Mapping[str, Any],
    runner: Runner | None = None,
    *,
    made: str | None = None,
    **more: Any,
) -> build_store.Built:
    """The finished rebuild of a store; its files lie in ``directory``, which is ``made`` where that is named."""
    options = options_for(store, work / "output", settings, **more)
    opened = opening.open_store(options)
    if "consumequeue" in options.only:
        opened = opening.with_queue_store(opened, options.queue_store)
    return build_store.rebuild(options, opened, str(work), runner or Runner(), made=made)


def rebuilt_files(output: str, as_long_as: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """The files of an output, by their paths in it; its manifest names its own place and is none of them. Other storage
    than a local disk has files that end with their data: with zeros they are ``as_long_as`` local ones.
    """
    names, wanted = files.tree_sizes(output).keys() - {"manifest.json"}, as_long_as or {}
    found = {name: files.read_bytes(locations.join(output, name)) for name in sorted(names)}
    return {name: content.ljust(len(wanted.get(name, b"")), b"\0") for name, content in found.items()}


def rules_of_release(release: str) -> str:
    """The ``--broker-version`` of a RocketMQ release."""
    return RULES_OF_RELEASE.get(release) or RULES_OF_RELEASE[release.rpartition(".")[0]]


def verify_here(store: Path, settings: Mapping[str, Any], runner: Runner | None = None, **more: Any) -> Verification:
    """What a verification of a store finds."""
    given = tuple((name, str(settings[name])) for name in SETTINGS if name in settings)
    options = narrow_to_queues(VerifyOptions(store=str(store), settings=given, **more))
    opened = opening.open_store(options)
    if "consumequeue" in options.only:
        opened = opening.with_queue_store(opened)
    with tempfile.TemporaryDirectory(prefix="verify-") as staging:
        return verify.compare_store(options, opened, staging, runner or Runner())


def preflight_here(store: Path, settings: Mapping[str, Any], release: str) -> Answer:
    """What ``preflight`` says before a broker of a release starts on a store."""
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return safe_to_start(str(store), Settings(text), rules_of_release(release))
