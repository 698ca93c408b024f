"""The journal of a swap: what is found in ``backup/``, and what counts as one that this program wrote."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from support.swapping import NEW, QUEUES

from storeformat.errors import Refused
from storeformat.store.swap import swap, swap_journal
from storeformat.store.swap.swap_journal import Swap, SwapJournal, SwapLog


def in_place() -> dict[str, str]:
    return {name: text for name, text in NEW.items() if name != "manifest.json"}


def test_replacements_are_found_in_their_order_and_nothing_else_is_one(root: Path, source: Path) -> None:
    times = [datetime(2024, 1, day, tzinfo=timezone.utc) for day in (3, 1, 2)]  # a clock may be set back
    log = SwapLog(7, 9, ("a", "b"), "5.3")
    made = [
        swap.begin(str(root), SwapJournal("publish", number, str(source), (QUEUES,), log), now)
        for number, now in zip((2, 10, 1), times, strict=True)
    ]
    (root / "backup" / "begun-only").mkdir()
    (root / "backup" / "a-file").write_text("")
    assert swap_journal.swaps(str(root)) == [made[2], made[0], made[1]]
    assert swap_journal.swaps(str(source)) == []


def rewrite(item: Swap, **changes: Any) -> None:
    path = Path(item.at("journal.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes",
    [{"format": 2}, {"state": "begun"}, {"places": [{"path": "index"}]}, {"log": None}, {"more": 1}, {"papers": None}],
)
def test_a_journal_of_others_is_refused(changes: dict[str, Any], begun: Swap) -> None:
    rewrite(begun, **changes)
    with pytest.raises(Refused, match="cannot be understood") as caught:
        swap_journal.swaps(begun.root)
    assert caught.value.path == begun.at("journal.json")


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "[" * 100_000])
def test_what_is_no_journal_is_refused(text: str, begun: Swap) -> None:
    Path(begun.at("journal.json")).write_text(text)
    with pytest.raises(Refused, match="cannot be understood"):
        swap_journal.swaps(begun.root)


def test_a_journal_that_says_nothing_of_damage_is_of_a_log_without(begun: Swap) -> None:
    rewrite(begun, log={"begin": 0, "end": 1, "directories": ["d"], "broker_version": "5.3"})
    (found,) = swap_journal.swaps(begun.root)
    assert (found.journal.log.past_damage, found.journal.log.as_broker) == (False, False)


@pytest.mark.parametrize(
    ("path", "swapped"),
    [
        ("consumequeue", True),
        ("consumequeue/T/0", True),
        ("consumequeue_ext/T", True),
        ("batchconsumequeue/%RETRY%g/0", True),
        ("index", True),
        ("checkpoint", True),
        ("abort", True),
        ("config", True),
        ("config/topics.json", True),
        ("config/consumerOffset.json", True),
        ("config/subscriptionGroup.json", False),
        ("index/20240101000000000", False),
        ("commitlog", False),
        ("lock", False),
        ("", False),
        ("/etc", False),
        ("../etc", False),
        ("consumequeue/../commitlog", False),
        ("consumequeue//0", False),
        ("consumequeue/./0", False),
        ("consumequeue/T\0", False),
    ],
)
def test_paths_that_a_swap_may_replace(path: str, swapped: bool) -> None:
    assert swap_journal.is_swapped(path) == swapped
