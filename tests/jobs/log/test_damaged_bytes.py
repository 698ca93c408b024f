"""How much lost messages may claim of damaged ranges."""

from __future__ import annotations

from jobs.log.queue_runs import DamagedBytes, SharedRoom


def test_room_is_shared_as_the_places_allow() -> None:
    """A claim that reaches to the second range leaves the first to one that does not."""
    damaged = DamagedBytes.of([(0, 910, True), (2_000, 2_910, True)])
    room = SharedRoom(damaged)
    assert room.claim(slice(0, 1), 7)
    assert not room.claim(slice(0, 1), 4)
    assert room.claim(slice(0, 2), 13)
    assert not room.claim(slice(0, 2), 1)
    assert not room.claim(slice(0), 1)


def test_ranges_between_two_places_and_their_room() -> None:
    damaged = DamagedBytes.of([(500, 591, False), (100, 190, True), (300, 482, True)])
    assert (damaged.begins.tolist(), damaged.ends.tolist()) == ([100, 300, 500], [190, 482, 591])
    assert damaged.held_records.tolist() == [True, True, False]
    places = [(99, 101), (100, 301), (99, 100), (100, 300), (0, 999), (500, 999), (-1, 501)]
    assert [damaged.between(*place) for place in places] == [
        slice(0, 1), slice(1, 2), slice(0), slice(0), slice(0, 3), slice(0), slice(0, 3),
    ]  # fmt: skip
    rooms = [(slice(0, 1), 0), (slice(1, 2), 2), (slice(2, 3), 1), (slice(0, 3), 3), (slice(0), 0)]
    assert [damaged.room(ranges) for ranges, _ in rooms] == [room for _, room in rooms]


def test_a_claim_that_is_not_met_takes_nothing() -> None:
    room = SharedRoom(DamagedBytes.of([(0, 30, True), (100, 120, True), (200, 210, True)]), 10)
    assert not room.claim(slice(0, 2), 6)
    assert room.claim(slice(0, 2), 4)
    assert not room.claim(slice(0, 2), 2)
    assert room.claim(slice(0, 3), 2)
    assert room.claim(slice(0, 3), 0)
    assert not room.claim(slice(0, 3), 1)
    assert SharedRoom(DamagedBytes.of([(0, 91, True)])).claim(slice(0, 1), 1)
    assert not SharedRoom(DamagedBytes.of([(0, 90, True)])).claim(slice(0, 1), 1)
