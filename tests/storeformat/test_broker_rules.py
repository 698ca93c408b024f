"""The rules of each release, against the broker's own words at its tags, and what a store shows of its release."""

from __future__ import annotations

import pytest
from support import golden
from support.rebuilding import rules_of_release

from storeformat.store.broker_rules import DEFAULT, VERSIONS, ReleaseSigns, guess_version, rules_of

_4_9 = {"corrects_delay_offsets", "reads_several_paths"}
_5_0 = _4_9 | {
    "search_min_offset", "may_read_long_topics", "wants_dup_info", "deletes_at_once", "trusts_clean_stop",
    "reads_batches_and_timers",
}  # fmt: skip
_5_1 = _5_0 | {"search_by_store_time", "reads_long_topics", "passes_over_directories"}
_5_3 = _5_1 | {
    "deletes_empty_file",
    "wants_property_crc",
    "trims_settings",
    "knows_rocksdb",
    "dispatch_uncommitted",
    "starts_at_furthest_queue",
    "takes_offsets_file",
}

_5_5 = _5_3 | {
    "dispatches_after_queues",
    "bounded_recovery",
    "index_tags",
    "checkpoint_queue_offset",
    "restores_databases",
}


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        ("4.7.0", {"split_parser", "count_every_put"}),
        ("4.9.0", {"split_parser"}),
        ("4.9.8", _4_9),
        ("5.0.0", _5_0 | {"leaves_gaps"}),
        ("5.1.0", _5_0 | {"leaves_gaps"}),
        ("5.1.4", _5_1),
        ("5.3.3", _5_3),
        ("5.5.0", _5_5),
    ],
)  # fmt: skip
def test_flags_of_a_release(release: str, flags: set[str]) -> None:
    rules = rules_of(rules_of_release(release))
    assert {name for name, value in vars(rules).items() if value is True} == flags


_WITHIN = {
    "corrects_delay_offsets",
    "may_read_long_topics",
    "reads_long_topics",
    "passes_over_directories",
    "deletes_empty_file",
}
_SINCE_5_3_2 = {"starts_at_furthest_queue", "takes_offsets_file", "dispatches_after_queues"}
_WITHIN |= {*_SINCE_5_3_2, "leaves_gaps"}


@pytest.mark.parametrize(
    ("text", "version", "exact"),
    [
        ("4.5.2", "4.6", set()), ("4.7.0", "4.6", set()), ("4.7.1", "4.8", set()), ("4.9.1", "4.9", set()),
        ("V4_9_8", "4.9", {"corrects_delay_offsets"}),
        ("rocketmq-all-5.0.0", "5.0", {"corrects_delay_offsets", "leaves_gaps"}),
        ("5.1.0", "5.0", {"corrects_delay_offsets", "may_read_long_topics", "reads_long_topics",
                          "passes_over_directories"}),
        ("5.2", "5.3", None), ("5.4", "5.5", None), ("5.5.1-SNAPSHOT", "5.5", _WITHIN - {"leaves_gaps"}),
        ("release-5.3.1", "5.3", _WITHIN - {*_SINCE_5_3_2, "leaves_gaps"}),
        ("5.6.0", "5.5", _WITHIN - {"leaves_gaps"}),
    ],
)  # fmt: skip
def test_a_release_as_people_write_it(text: str, version: str, exact: set[str] | None) -> None:
    rules = rules_of(text)
    assert rules.version == version
    if exact is None:
        assert rules == rules_of(version)
    else:
        assert {name for name in _WITHIN if getattr(rules, name)} == exact


@pytest.mark.parametrize("text", ["", "5", "6.0.0", "3.2.6", "5.x", "4.7", "latest", "5.3.3.1"])
def test_what_is_no_release(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no release of|give all three numbers"):
        rules_of(text)


@pytest.mark.parametrize(
    ("topic", "excluded_in"),
    [
        ("Orders", set()),
        ("%RETRY%group", {"5.1", "5.3", "5.5"}),
        ("SCHEDULE_TOPIC_XXXX", {"5.1", "5.3", "5.5"}),
        ("rmq_sys_wheel_timer", {"5.1", "5.3", "5.5"}),
        ("rmq_sys_other", {"5.3", "5.5"}),
    ],
)
def test_topics_without_light_queues(topic: str, excluded_in: set[str]) -> None:
    """``ConsumeQueue#checkMultiDispatchQueue`` names the timer's topic in 5.1.2, and all ``rmq_sys_`` from 5.2.0 on."""
    found = {
        version
        for version in VERSIONS
        for rules in [rules_of(version)]
        if topic in rules.no_light_topics or topic.startswith(rules.no_light_prefixes)
    }
    assert found == excluded_in


@pytest.mark.parametrize(
    ("signs", "version"),
    [
        (ReleaseSigns(), DEFAULT),
        (ReleaseSigns(has_rocksdb_store=True), "5.5"),
        (ReleaseSigns(checkpoint_tail=(0, 0, 1)), "5.5"),
        (ReleaseSigns(checkpoint_tail=(0, 1, 0)), "5.3"),
        (ReleaseSigns(checkpoint_tail=(1, 0, 0)), DEFAULT),
        (ReleaseSigns(checkpoint_tail=(1, 1)), "5.3"),
        (ReleaseSigns(checkpoint_tail=(1,)), DEFAULT),
        (ReleaseSigns(counts_every_put=True, checkpoint_tail=(0, 1, 0)), "4.6"),
        (ReleaseSigns(counts_every_put=True), "4.6"),
        (ReleaseSigns(counts_every_put=False), DEFAULT),
    ],
)
def test_what_a_store_shows(signs: ReleaseSigns, version: str) -> None:
    assert guess_version(signs)[0] == version


def test_a_guess_has_its_reason() -> None:
    reasons = [
        guess_version(signs)[1]
        for signs in (
            ReleaseSigns(has_rocksdb_store=True),
            ReleaseSigns(checkpoint_tail=(0, 0, 1)),
            ReleaseSigns(counts_every_put=True),
            ReleaseSigns(checkpoint_tail=(0, 1, 0)),
            ReleaseSigns(),
        )
    ]
    assert reasons == [
        "the store holds rocksdbstore/, which brokers from 5.4.0 on create",
        "the checkpoint holds logicsPhysicalOffset, which 5.5.0 writes",
        "index headers count every put, as brokers up to 4.7.0 do",
        "the checkpoint holds confirmPhyOffset (5.1.1 and later), and there is no rocksdbstore/ (5.4.0 and later)",
        "nothing in the store shows the release",
    ]


@pytest.mark.golden
def test_every_golden_release_has_rules() -> None:
    assert {rules_of_release(store.version) for store in golden.stores()} <= set(VERSIONS)
