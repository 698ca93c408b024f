"""Was a table restored to a version before the last load of a broker?

``RESTORE TABLE ... TO VERSION`` takes rows away and leaves Delta's transactions as they are: these still say that the
rows were loaded. Only the history tells: it is read from Delta's log, from the newest commit back to the load.

==========================  ==========================================================================================
``_delta_log/N.json``       one action a line; N has 20 digits. Old ones go after ``delta.logRetentionDuration``
``{"txn": ...}``            ``appId`` and ``version``: what a load records (``jobs.table.commits``)
``{"commitInfo": ...}``     ``operation`` is RESTORE; ``operationParameters`` has ``version``, or ``timestamp``
==========================  ==========================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from storeformat.errors import MissingInput
from storeformat.storage import files, locations

Actions = Sequence[Mapping[str, Any]]


def commits_back_from(table: str, newest: int) -> Iterator[tuple[int, Actions]]:
    """Yields version and actions of a table's commits, the newest first, as far back as Delta's log has them."""
    for version in range(newest, -1, -1):
        try:
            content = files.read_bytes(locations.join(table, "_delta_log", f"{version:020d}.json"))
        except MissingInput:
            return
        yield version, [json.loads(line) for line in content.splitlines() if line.strip()]


def restored_before(commits: Iterable[tuple[int, Actions]], transaction: str, end: int) -> int | None:
    """Returns the version of the RESTORE that took a load's rows away, None if they are still there.

    The load is the commit that recorded ``end`` for ``transaction``. A log that no longer has it shows nothing.
    """
    restores: dict[int, int] = {}
    newest = -1
    for version, actions in commits:
        newest = max(newest, version)
        if any(_records(action, transaction, end) for action in actions):
            content = newest
            while content > version:  # the rows of a RESTORE are those of its target
                content = restores.get(content, content - 1)
            return max(restores) if content < version else None
        for action in actions:
            information = action.get("commitInfo", {})
            if information.get("operation") == "RESTORE":
                # Of a time it is not known which version that was.
                restores[version] = _version(information.get("operationParameters", {}))
    return None


def _records(action: Mapping[str, Any], transaction: str, end: int) -> bool:
    recorded = action.get("txn", {})
    return bool(recorded) and (recorded["appId"], recorded["version"]) == (transaction, end)


def _version(parameters: Mapping[str, Any]) -> int:
    found = parameters.get("version")
    return int(found) if found is not None else -1
