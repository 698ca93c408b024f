"""Stores as real brokers left them: ``verify`` must not complain, and must say what is worth knowing."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from support import golden
from support.golden import GoldenStore
from support.rebuilding import rules_of_release
from support.store_builder import LogBuilder
from support.verifying import verify_here

from jobs.contract.options import TopicFilter
from jobs.verify.verify import Verified

pytestmark = pytest.mark.golden


def notes(verified: Verified) -> str:
    return "\n".join(verified.verdicts.notes)


@pytest.mark.parametrize(
    ("store", "split_size"),
    [
        pytest.param(store, size, id=f"{store}-{size}", marks=() if number % 2 == at else pytest.mark.slow)
        for number, store in enumerate(golden.stores())
        for at, size in enumerate((4 << 10, 1 << 30))
    ],
)
def test_no_false_alarm(store: GoldenStore, split_size: int) -> None:
    version = rules_of_release(store.version) if store.scenario == "lmq" else None
    verified = verify_here(golden.unpack(store), store.settings, split_size=split_size, broker_version=version)
    assert verified.verdicts.differences == []
    assert not verified.verdicts.counts
    assert verified.reading.records == store.entry["counts"]["messages"]
    assert verified.compared["index_files"] == store.entry["counts"]["index_files"]
    assert verified.compared["consume_queue_units"] > 0
    assert verified.compared["index_entries"] > 0
    assert ("queues lag" in notes(verified)) == (store.dispatched_up_to is not None)
    hazards = verified.verdicts.hazard_counts
    assert bool(hazards["index_gap"]) == (store.index_begins_at is not None)
    assert bool(hazards["old_units"] + hazards["units_beyond_log"]) == (store.scenario == "stale")
    assert "not verified" not in notes(verified).replace("bit maps are not verified", "")


@pytest.mark.parametrize("store", golden.stores("lmq"), ids=str)
def test_light_queues_that_nobody_asked_for(store: GoldenStore) -> None:
    sizes = {name: value for name, value in store.settings.items() if name[:6] != "enable"}
    verified = verify_here(golden.unpack(store), sizes)
    assert not verified.verdicts.counts
    assert "not verified without --set enableMultiDispatch" in notes(verified)


@pytest.mark.parametrize("store", golden.stores(lambda s: s.scenario in ("base", "retention", "recreate")), ids=str)
def test_named_release(store: GoldenStore) -> None:
    version = rules_of_release(store.version)
    assert not verify_here(golden.unpack(store), store.settings, broker_version=version).verdicts.counts


@pytest.mark.parametrize("store", golden.stores(lambda s: s.scenario in ("base", "lag", "retention")), ids=str)
def test_log_that_was_cut_while_the_rest_went_on(store: GoldenStore) -> None:
    """``--until-offset`` is what a live broker looks like: queues and index know more than was read."""
    until = (store.min_offset + store.end_offset) // 2
    verified = verify_here(golden.unpack(store), store.settings, until_offset=until)
    assert not verified.verdicts.counts
    assert not verified.verdicts.hazard_counts["units_beyond_log"]
    assert "after the part of the log that was read" in notes(verified)


@pytest.mark.parametrize("name", ["base-clean-4.9.8", "base-clean-5.5.0", "retention-5.1.4"])
def test_queues_of_one_topic(name: str) -> None:
    (store,) = golden.stores(name)
    root = golden.unpack(store)
    whole = verify_here(root, store.settings)
    one = verify_here(root, store.settings, topics=(TopicFilter("TopicOrder", 1),))
    all_of_it = verify_here(root, store.settings, topics=(TopicFilter("TopicOrder"),))
    assert not one.verdicts.counts
    assert one.compared["queues"] == 1
    assert all_of_it.compared["queues"] == len(list((root / "consumequeue" / "TopicOrder").iterdir()))
    units = [verified.compared["consume_queue_units"] for verified in (one, all_of_it, whole)]
    assert 0 < units[0] < units[1] < units[2]
    assert "index_files" not in one.compared


@pytest.fixture
def lagging(tmp_path: Path) -> tuple[GoldenStore, Path]:
    (store,) = golden.stores("lag-killed-5.1.4")
    return store, golden.unpack(store, tmp_path)


def test_lag_without_abort_is_loss(lagging: tuple[GoldenStore, Path]) -> None:
    """A store that was closed cleanly has dispatched everything: 5.0 to 5.3.1 would never queue the rest."""
    store, root = lagging
    (root / "abort").unlink()
    counts = verify_here(root, store.settings).verdicts.counts
    assert counts == {"missing_unit": 62, "missing_file": 1, "missing_key": 120}  # the file would hold 4 units


def test_queue_that_lags_behind_the_others_is_damaged(lagging: tuple[GoldenStore, Path]) -> None:
    store, root = lagging
    file = root / "consumequeue" / "A" / "0" / "00000000000000000000"
    units = file.read_bytes()
    last = max(at for at in range(0, len(units), 20) if any(units[at : at + 20]))
    (offset,) = struct.unpack_from(">q", units, last)
    assert offset < store.dispatched_up_to - 5_000
    file.write_bytes(units[:last] + bytes(len(units) - last))
    (difference,) = verify_here(root, store.settings).verdicts.differences
    assert (difference["cause"], difference["position"]) == ("missing_unit", last)
    assert difference["expected"]["phy_offset"] == offset


def test_lagging_store_without_an_index(lagging: tuple[GoldenStore, Path]) -> None:
    store, root = lagging
    shutil.rmtree(root / "index")
    verified = verify_here(root, store.settings)
    assert verified.verdicts.counts == {"missing_file": 1}
    # 120 and the two of the last record in a queue, whose turn in the index comes after that.
    assert "122 entries are not made yet" in notes(verified)


@pytest.mark.parametrize(("version", "segments"), [("5.3", 12), ("5.5", 9), ("5.5", 12)])
def test_queues_that_no_recovery_brings_back_are_a_hazard(tmp_path: Path, version: str, segments: int) -> None:
    """Until 5.3 a start after a crash dispatches the whole log again, from 5.4 on its last ten segments."""
    log = LogBuilder(4096)
    while log.end_offset < segments * 4096 - 1000:
        log.message(topic="T", body=bytes(100))
    root = log.write(tmp_path / "store")
    (root / "abort").touch()
    verified = verify_here(root, {"maxHashSlotNum": 100, "maxIndexNum": 400}, broker_version=version)
    assert "queues lag" in notes(verified)
    assert [difference["artefact"] for difference in verified.verdicts.differences] == ["checkpoint"]
    hazards = [row for row in verified.verdicts.hazards if row["hazard"] == "lag_beyond_recovery"]
    if (version, segments) != ("5.5", 12):
        assert hazards == []
        return
    (hazard,) = hazards
    assert "from offset 0 to 8192" in hazard["what"]
    assert "publish --after-crash" in hazard["advice"]
