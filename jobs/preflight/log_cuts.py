"""Rules on what makes a broker other than its broker.conf reads, and on sound records with which it ends the log.

===================================================  ============================  ==============================
recovery ends the log at the first record            where                         releases
===================================================  ============================  ==============================
without a property CRC                               ``forceVerifyPropCRC=true``,  5.2.0 and later
                                                     ``checkCRCOnRecover`` is on
with properties, and without DUP_INFO                ``duplicationEnable=true``    5.0.0 and later
with a topic length of two bytes                     always                        up to 5.0.0
===================================================  ============================  ==============================

Mirrors CommitLog#checkMessageAndReturnSize (4.9.8 to 5.5.0), which #recoverNormally and #recoverAbnormally ask.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import StoppedStore
from storeformat.javacompat import parse_int

_CHOICES = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
}
"""Settings whose setters take these words alone, the first by default (MessageStoreConfig#setBrokerRole)."""


def settings_not_taken(store: StoppedStore) -> Iterator[Reason]:
    """Yields values of broker.conf that the broker passes over; the other rules judge what it takes instead.

    Mirrors MixAll#properties2Object and MessageStoreConfig#setBrokerRole (4.9.8 to 5.5.0).
    """
    conf = store.conf
    for name, text in conf.not_taken():
        what = f"the broker does not take {name}='{text}', and says nothing: its default stands"
        whole = text.strip() if parse_int(text.strip()) is not None else "a whole number"
        cure = f"set {name}={whole} in broker.conf"
        yield Reason("setting_not_taken", what, text, "a number below 2^31", cure, unsafe=False)
    for name, choices in _CHOICES.items():
        text = conf.given.get(name, choices[0])
        if (text.strip() if store.rules.trims_settings else text) not in choices:
            what = f"the broker does not take {name}='{text}', and says nothing: it is {choices[0]}"
            cure = f"write {name} as one of {', '.join(choices)} in broker.conf"
            unsafe = name == "brokerRole" and text.strip() != choices[0]
            yield Reason("setting_not_taken", what, text, list(choices), cure, unsafe)


def records_not_taken(store: StoppedStore) -> Iterator[Reason]:
    """Yields the first record of each kind that recovery does not take, though it is sound: the log ends there."""
    settings, rules, tail = store.conf, store.rules, store.tail
    verifies = settings.flag("forceVerifyPropCRC", default=False) and settings.flag("checkCRCOnRecover", default=True)
    doubles = settings.flag("duplicationEnable", default=False)
    kinds = (
        ("long topic", "a topic length of two bytes", "one byte", not rules.reads_long_topics, "this release",
         "start a broker of 5.1.0 or later"),
        ("no DUP_INFO", "no DUP_INFO", "DUP_INFO", rules.wants_dup_info and doubles, "duplicationEnable=true",
         "set duplicationEnable=false in broker.conf"),
        ("no property CRC", "no property CRC", "a property CRC", rules.wants_property_crc and verifies,
         "forceVerifyPropCRC=true", "set forceVerifyPropCRC=false in broker.conf"),
    )  # fmt: skip
    for trait, found, expected, counts, because, cure in kinds:
        if counts and trait in tail.firsts and not store.log.of_group:
            first = tail.firsts[trait]
            lost = int((tail.offsets >= first).sum())
            yield Reason(
                "log_cut",
                f"{because}: the record at offset {first} has {found}, and the broker cuts the log at the first such "
                f"record that its recovery reads; {lost:,} messages from there on are in danger",
                found=found,
                expected=expected,
                cure=cure,
            )
