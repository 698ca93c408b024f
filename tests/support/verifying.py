"""``verify`` and ``preflight`` of a store in this process, without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.rebuilding import SETTINGS, rules_of_release

from jobs.contract.options import VerifyOptions, narrow_to_queues
from jobs.log import opening
from jobs.preflight.preflight import safe_to_start
from jobs.preflight.reason import Answer
from jobs.spark.runner import Runner
from jobs.verify import verify
from storeformat.store.settings import Settings


def verify_here(store: Path, settings: Mapping[str, Any], runner: Runner | None = None, **more: Any) -> verify.Verified:
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
