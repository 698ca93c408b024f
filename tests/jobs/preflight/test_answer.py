"""The answer as part of the report of another job."""

from __future__ import annotations

from pathlib import Path

from support.store_to_start import StoreToStart

from jobs.preflight.preflight import start_facts


def test_a_job_says_whether_the_store_may_be_started(store: StoreToStart) -> None:
    settings = list(store.conf.items())
    assert start_facts(str(store.root), settings=settings) == {"answer": "safe to start", "reasons": []}
    facts = start_facts(str(store.root), settings=[*settings, ("storeType", "defaultRocksDB")])
    assert facts["answer"] == "not safe to start"
    conf = store.root / "broker.conf"
    conf.write_text("storeType = defaultRocksDB\n" + "".join(f"{name} = {value}\n" for name, value in settings))
    assert start_facts(str(store.root), str(conf)) == facts
    assert start_facts(str(store.root), settings=settings, version="5.5")["answer"] == "safe to start"


def test_where_it_cannot_be_had_the_reason_is_the_answer(tmp_path: Path) -> None:
    said = f"not known: there is no such store ({tmp_path}/nowhere)"
    assert start_facts(str(tmp_path / "nowhere")) == {"answer": said, "reasons": []}


def test_offsets_are_right_until_the_log_is_seen_to(store: StoreToStart) -> None:
    """The last segment is missing: whoever lowers offsets first has groups read again once it is back."""
    store.segment(1).unlink()
    assert store.reasons("committed_beyond_queue") == []
    reason = store.only_reason("units_beyond_log")
    assert (reason.unsafe, reason.cure[:37]) == (True, "put back first what is missing of the")
