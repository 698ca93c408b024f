"""The choice of offsets: nobody skips a message, on random histories against an oracle, and each source by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.offsets_model import History, pulled

from jobs.consumer_offsets.copies import OffsetsCopy
from jobs.consumer_offsets.plan import BEGIN, TIME, ChosenOffset, choose
from jobs.consumer_offsets.ranges import QueueRanges
from storeformat.store.config.config_files import FileState
from storeformat.store.config.consumer_offsets import REVIVE_GROUP
from udfs.log.subscriptions import Subscription

KEY = ("T", "readers")
RETRIED, NOTHING = frozenset({KEY}), frozenset[Subscription]()


def copy(
    source: str, queues: dict[int, int] | None, content: FileState = FileState.SOUND, group: str = "readers"
) -> Any:
    return OffsetsCopy(source, source, content, offsets={} if queues is None else {("T", group): queues})


def only(chosen: list[ChosenOffset]) -> ChosenOffset:
    (one,) = chosen
    return one


def ranges(begin: int = 0, end: int = 10, **more: Any) -> QueueRanges:
    return QueueRanges({("T", 0): (begin, end)}, **more)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_skips_a_message(seed: int) -> None:
    """File torn or gone; what else there is: older copies, a retried message, or some of them."""
    chance = random.Random(seed)
    for _ in range(50):
        history = pulled(chance)
        ages = sorted(chance.sample(range(len(history.commits)), min(chance.randrange(3), len(history.commits))))
        copies = [copy(f"copy {age}", {0: history.commits[age]}) for age in reversed(ages)]
        copies.insert(0, copy("file", None, FileState.TORN))
        one = only(choose(copies, ranges(history.begin, history.end), RETRIED))
        check(history, one)


def check(history: History, one: ChosenOffset) -> None:
    assert history.unread() <= set(range(one.offset, history.end)), (history, one)
    assert one.read_again_at_most is not None
    assert len(history.read_again(one.offset)) <= one.read_again_at_most, (history, one)
    assert one.offset <= history.end


class TestCopies:
    def test_a_sound_file_counts_first_and_the_log_does_not(self) -> None:
        chosen = choose([copy("file", {0: 4}), copy(".bak", {0: 3, 1: 5})], ranges(), RETRIED)
        assert [(one.queue_id, one.found, one.source) for one in chosen] == [(0, 4, "file"), (1, 5, ".bak")]
        assert chosen[0].read_again_at_most == 6

    def test_an_empty_table_proves_nothing(self) -> None:
        """A broker that was started without offsets leaves one: copies and the log count beside it."""
        empty = OffsetsCopy("file", "file", FileState.SOUND)
        assert only(choose([empty, copy("replica", {0: 5})], ranges(), NOTHING)).source == "replica"
        assert only(choose([empty], ranges(), RETRIED)).source == BEGIN

    def test_the_first_copy_with_the_queue_counts(self) -> None:
        copies = [copy("file", {1: 3}, FileState.TORN), copy("replica", {0: 5, 1: 1}), copy(".bak", {0: 6, 2: 2})]
        chosen = choose(copies, ranges(), NOTHING)
        assert [(one.queue_id, one.found, one.source) for one in chosen] == [
            (0, 5, "replica"),
            (1, 3, "file"),
            (2, 2, ".bak"),
        ]

    def test_beyond_the_end_it_is_the_end(self) -> None:
        one = only(choose([copy("file", {0: 17})], ranges(), NOTHING))
        assert (one.offset, one.found, one.read_again_at_most) == (10, 17, 0)

    def test_a_queue_that_is_not_there_begins_at_zero(self) -> None:
        assert only(choose([copy("file", {5: 17})], ranges(), NOTHING)).offset == 0

    def test_what_is_not_known_stays(self) -> None:
        one = only(choose([copy("file", {5: 17})], ranges(unknown=frozenset({"T"})), NOTHING))
        assert (one.offset, one.read_again_at_most) == (17, None)

    def test_before_the_first_message_it_stays(self) -> None:
        assert only(choose([copy("file", {0: 2})], ranges(begin=5), NOTHING)).offset == 2

    def test_the_revive_group_has_the_last_message_read(self) -> None:
        assert only(choose([copy("file", {0: 10}, group=REVIVE_GROUP)], ranges(), NOTHING)).offset == 9
        assert choose([copy("file", {5: 10}, group=REVIVE_GROUP)], ranges(), NOTHING) == []


class TestLog:
    def test_a_retried_message_proves_no_more_than_that_the_group_reads(self) -> None:
        one = only(choose([], ranges(begin=3), RETRIED))
        assert (one.offset, one.source, one.read_again_at_most) == (3, BEGIN, 7)

    def test_a_queue_that_a_copy_lacks_begins_with_its_first_message(self) -> None:
        """The group may have committed there after the copy was written, and may begin at the end without an offset."""
        copies = [copy("file", None, FileState.TORN), copy(".bak", {1: 0})]
        chosen = choose(copies, ranges(), NOTHING)
        assert [(one.queue_id, one.offset, one.source) for one in chosen] == [(0, 0, BEGIN), (1, 0, ".bak")]
        assert [one.queue_id for one in choose([copy("file", {1: 0})], ranges(), NOTHING)] == [1]

    def test_groups_of_the_broker_are_left_out(self) -> None:
        assert choose([], ranges(), frozenset({("T", REVIVE_GROUP)})) == []


class TestTime:
    def test_all_groups_begin_there(self) -> None:
        one = only(choose([copy("file", {0: 4})], ranges(), NOTHING, {("T", 0): 7}))
        assert (one.offset, one.source, one.skipped, one.read_again_at_most) == (7, TIME, 3, 3)
        assert only(choose([], ranges(), RETRIED, {("T", 0): 7})).skipped == 7

    def test_in_all_queues_of_its_topics(self) -> None:
        chosen = choose([copy("file", {1: 0})], ranges(), NOTHING, {("T", 0): 7})
        assert [(one.queue_id, one.offset) for one in chosen] == [(0, 7), (1, 0)]

    def test_retries_and_the_brokers_own_stay(self) -> None:
        retry = OffsetsCopy("file", "", FileState.SOUND, offsets={("%RETRY%readers", "readers"): {0: 4}})
        known = QueueRanges({("%RETRY%readers", 0): (0, 9), ("T", 0): (0, 10)})
        assert only(choose([retry], known, NOTHING, {("%RETRY%readers", 0): 7})).offset == 4
        revive = copy("file", {0: 5}, group=REVIVE_GROUP)
        assert only(choose([revive], known, NOTHING, {("T", 0): 7})).offset == 5
