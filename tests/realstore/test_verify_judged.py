"""Random stores of real brokers, written, halted, recovered and gone on with: ``verify`` finds nothing wrong in any."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.real_store import FEATURES, RELEASES, RealStore, Store, wiped_copy
from support.rebuilding import rules_of_release
from support.verifying import verify_here

pytestmark = pytest.mark.realstore


def complaints(release: str, stores: list[Store], *expected: str) -> list[str]:
    found = []
    for store in stores:
        verified = verify_here(store.root, store.settings, broker_version=rules_of_release(release))
        assert verified.compared["consume_queue_units"] > 0
        found += [f"{store.root.name}: {difference}" for difference in verified.verdicts.differences]
        hazards = verified.verdicts.hazards
        found += [f"{store.root.name}: {hazard}" for hazard in hazards if hazard["hazard"] not in expected]
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_written_and_shut_down(release: str, tmp_path: Path) -> None:
    """Plain stores, and two with each feature that the release has."""
    with_features = [feature for feature in FEATURES[release] for _ in range(2)]
    stores = RealStore(release).write(
        tmp_path, 6 + len(with_features), seed=40_000, features=lambda number: with_features[number : number + 1]
    )
    assert complaints(release, stores) == []


@pytest.mark.parametrize("release", RELEASES)
def test_halted_and_opened_again(release: str, tmp_path: Path) -> None:
    """The broker recovers from its abort file, indexes the last record again, and takes new messages."""
    judge = RealStore(release)
    stores = judge.write(tmp_path, 5, seed=42_000, halt=True)
    assert complaints(release, stores) == []
    judge.open([store.root for store in stores], put=True)
    # 5.5.0 now and then loses the newest part of its index here and begins again with a segment: it is named.
    assert complaints(release, stores, "index_gap") == []


@pytest.mark.parametrize("release", RELEASES)
def test_recovered_by_the_broker_itself(release: str, tmp_path: Path) -> None:
    judge = RealStore(release)
    written = judge.write(tmp_path / "written", 5, seed=43_000)
    copies = [wiped_copy(store.root, tmp_path / "wiped" / store.root.name) for store in written]
    assert complaints(release, judge.recover(copies)) == []
