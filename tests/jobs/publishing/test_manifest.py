"""What a manifest says of a rebuild, and which parts of a store it replaces."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config import ARTEFACTS
from jobs.manifest import Manifest
from storeformat.contents import Content

ALL = tuple(ARTEFACTS)


def manifest(*paths: str, **changes: Any) -> Manifest:
    facts = {
        "digest": "", "log_begin": 0, "log_end": 100, "broker_version": "5.3", "on_damage": "fail", "damaged_ranges": 0,
        "artefacts": ALL, "topics": (), "settings": {},
    }  # fmt: skip
    return Manifest(**{**facts, **changes}, files={path: Content(6_000_000, 1, bytes(32)) for path in paths})


def test_only_all_of_all_topics_is_the_whole() -> None:
    assert manifest().whole
    assert manifest(artefacts=ALL[::-1]).whole
    assert not manifest(artefacts=ALL[:1]).whole
    assert not manifest(artefacts=ALL[1:]).whole
    assert not manifest(topics=(("T", None),)).whole


def test_sizes_with_holes_and_without() -> None:
    contents = (
        Content(6_000_000, 0, b""),
        Content(6_000_000, 1, b""),
        Content(5000, 4096, b""),
        Content(4097, 4097, b""),
    )
    some = Manifest(**{**vars(manifest()), "files": dict(zip("abcd", contents, strict=True))})
    assert (some.size, some.data_size, some.disk_size) == (12_009_097, 8_194, 4096 * (0 + 1 + 1 + 2))


BATCH, EXT = "batchconsumequeue/B/0/0", "consumequeue_ext/T/0/0"


@pytest.mark.parametrize(
    ("paths", "roots"),
    [
        ((), []),
        (("consumequeue/T/0/0", "index/1"), []),
        ((BATCH,), ["batchconsumequeue"]),
        ((EXT, "config/topics.json"), ["consumequeue_ext", "config/topics.json"]),
        (("consumequeue/batchconsumequeue/0/0",), []),
    ],
)
def test_a_whole_rebuild_replaces_its_artefacts_and_what_it_has_of_others(
    paths: tuple[str, ...], roots: list[str]
) -> None:
    assert manifest(*paths).roots() == [*ALL, *roots]


def test_a_rebuild_of_topics_replaces_their_directories_alone() -> None:
    topics = (("T", None), ("U", 3), ("..", None), ("a/../b", None))
    assert manifest(topics=topics).roots() == ["consumequeue/T", "consumequeue/U/3"]
    assert manifest(EXT, topics=topics).roots() == [
        "consumequeue/T", "consumequeue/U/3", "consumequeue_ext/T", "consumequeue_ext/U/3",
    ]  # fmt: skip
