"""How much lost messages may claim of damaged ranges."""

from __future__ import annotations

from jobs.log.damaged_bytes import DamagedBytes, SharedRoom


def test_room_is_shared_as_the_places_allow() -> None:
    """A claim that reaches to the second range leaves the first to one that does not."""
    damaged = DamagedBytes.of([(0, 910, True), (2_000, 2_910, True)])
    room = SharedRoom(damaged)
    assert room.claim(slice(0, 1), 7)
    assert not room.claim(slice(0, 1), 4)
    assert room.claim(slice(0, 2), 13)
    assert not room.claim(slice(0, 2), 1)
    assert not room.claim(slice(0), 1)
