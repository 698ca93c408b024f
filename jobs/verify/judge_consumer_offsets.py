"""``config/consumerOffset.json`` against the queues: a group beyond the end of a queue will skip new messages. Read
before the log, because a live broker commits on. A killed broker leaves it absent, empty or cut, with a sound ``.bak``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.consumer_offsets.ranges import queue_ranges
from jobs.log.opening import OpenedStore
from jobs.verify.differences import Subject, Verdicts, Verification
from storeformat.storage import files, locations
from storeformat.storage.broker_lock import is_live
from storeformat.store.config.config_files import CONFIG, ConfigFile, FileState, read_config, read_offsets
from storeformat.store.config.consumer_offsets import highest_committed, known_groups
from storeformat.store.layout import ABORT, LOCK
from storeformat.store.queue_places import rocksdb_queues

ARTEFACT = "consumer-offsets"
_SYSTEM_TOPICS = "rmq_sys_"
_OTHERS = ("topics.json", "subscriptionGroup.json")


@dataclass(frozen=True)
class StoredOffsets:
    """The file as its broker would load it, and the configured topics if known."""

    file: ConfigFile
    topics: Mapping[str, Any] | None
    groups: tuple[str, ...]
    """Groups known to the store or its ``.bak``."""
    live: bool
    """A broker runs; it first writes the file about ten seconds after its start."""
    unclean: bool
    """The broker was killed, or is running."""

    @property
    def subject(self) -> Subject:
        return Subject(ARTEFACT, locations.join(CONFIG, self.file.name))


def read_stored_offsets(store: OpenedStore) -> StoredOffsets | None:
    """Committed offsets of a store; None if they are not in a local file."""
    if not locations.is_local(store.root) or rocksdb_queues(store.root, store.queue_store):
        return None
    others = [read_config(store.root, name) for name in _OTHERS]
    file = read_offsets(store.root, enable_lmq=store.layout.enable_lmq)
    return StoredOffsets(
        file,
        others[0].value,
        tuple(known_groups(others[0].value or {}, others[1].value or {}, file.backup.value)),
        live=is_live(locations.join(store.root, LOCK)),
        unclean=files.exists(locations.join(store.root, ABORT)),
    )


def judge_consumer_offsets(run: Verification, stored: StoredOffsets) -> int:
    """Judge the file and its offsets; returns their number."""
    verdicts = run.verdicts
    _judge_file(stored, verdicts)
    ranges = queue_ranges(run.store, run.reading, files_stay=True)
    count = below = deleted = 0
    for (topic, group), offsets in sorted((stored.file.value or {}).items()):
        for queue_id, committed in sorted(offsets.items()):
            count += 1
            known = ranges.of(topic, queue_id)
            if known is None:
                continue
            highest = highest_committed(group, known[1])
            if committed <= max(highest, 0):
                below += committed < known[0]
            elif stored.topics is not None and topic not in stored.topics and not topic.startswith(_SYSTEM_TOPICS):
                deleted += 1
            else:
                verdicts.differ(
                    replace(stored.subject, topic=topic, queue_id=queue_id), "beyond_end",
                    expected={"at most": highest}, found={"group": group, "committed": committed},
                )  # fmt: skip
    verdicts.note_count(below, "committed offsets are before the first message of their queue: groups read from there")
    verdicts.note_count(deleted, "committed offsets are of topics that are not configured, and beyond their queues")
    return count


def _judge_file(stored: StoredOffsets, verdicts: Verdicts) -> None:
    main, backup = stored.file.main, stored.file.backup
    sound = main.content is FileState.SOUND
    if sound or stored.file.is_absent:
        if not main.value and stored.groups and not stored.live:
            found = {"offsets": 0} if sound else {"file": "absent"}
            verdicts.differ(
                stored.subject, "no_committed_offsets", expected={"groups": list(stored.groups)}, found=found
            )
        return
    if stored.unclean and stored.file.taken is backup:
        verdicts.warn(
            stored.subject,
            "offsets_from_backup",
            f"the broker was killed while it wrote the file, which is {main.content.value}; it will take the .bak",
            entries=len(backup.value),
            advice="groups read again what they committed after it; a --replica may know newer offsets",
        )
        return
    cause = "missing_file" if main.content is FileState.ABSENT else "torn_file"
    said = {"file": main.content.value, "why": main.why or None, ".bak": backup.content.value}
    if stored.file.taken is backup:
        said[".bak entries"] = str(len(backup.value))
    verdicts.differ(stored.subject, cause, expected="JSON", found={name: text for name, text in said.items() if text})
