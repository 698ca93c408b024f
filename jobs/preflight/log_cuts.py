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
from storeformat.store.layout import StoreLayout
from storeformat.store.setting_names import EFFECTS

_CHOICES = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
}
"""Settings whose setters take these words alone, the first by default (MessageStoreConfig#setBrokerRole)."""
_MARK = "\xef\xbb\xbf"
"""A byte order mark of UTF-8, as Java reads it."""
_PATHS = ("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "storePathDLedgerCommitLog")


def settings_not_taken(store: StoppedStore) -> Iterator[Reason]:
    """Yields numbers and switches of broker.conf that the broker passes over, and paths that have a blank to it.

    Mirrors Properties#load, MixAll#properties2Object and UtilAll#isItTimeToDo (4.9.8 to 5.5.0).
    """
    default = {name: str(value).lower() for name, value in StoreLayout().settings().items()}
    for name, text in store.conf.not_taken():
        yield Reason(
            "setting_not_taken",
            f"the broker does not take {name}='{text}', and says nothing: "
            + ("it is false" if text.strip().lower() == "true" else "its default stands"),
            found=text,
            expected=text.strip(),
            cure=f"write {name}={text.strip()} in broker.conf, without a blank at its end",
            unsafe=bool(EFFECTS.get(name)) and text.strip() != default.get(name),
        )
    for name, choices in _CHOICES.items():
        text = store.conf.given.get(name, choices[0])
        if (text.strip() if store.rules.trims_settings else text) not in choices:
            yield Reason(
                "setting_not_taken",
                f"the broker does not take {name}='{text}', and says nothing: it is {choices[0]}",
                found=text,
                expected=list(choices),
                cure=f"write {name} as one of {', '.join(choices)} in broker.conf",
                unsafe=name == "brokerRole" and text.strip() != choices[0],
            )
    for name in store.conf.given:
        if name.startswith(_MARK):
            meant = name.removeprefix(_MARK)
            yield Reason(
                "setting_not_taken",
                f"broker.conf begins with a byte order mark, and the broker does not know its first setting, {meant}",
                found=_MARK,
                expected=meant,
                cure="save broker.conf without a byte order mark",
                unsafe=bool(EFFECTS.get(meant)),
            )
    hours = store.conf.text("deleteWhen", "04")
    if any(parse_int(hour) is None for hour in hours.split(";")):
        yield Reason(
            "setting_not_taken",
            f"deleteWhen has '{hours}', which are no hours: the broker deletes nothing, however full the disk is",
            found=hours,
            expected="hours, such as 04 or 04;16",
            cure="write hours, such as deleteWhen=04",
            unsafe=False,
        )
    for name in _PATHS:
        text = store.conf.given.get(name, "")
        if text != text.strip() and not store.rules.trims_settings:
            yield Reason(
                "setting_not_taken",
                f"{name}='{text}' has a blank that a broker before 5.2.0 takes for a part of the path",
                found=text,
                expected=text.strip(),
                cure=f"write {name}={text.strip()} in broker.conf, without a blank at its end",
            )


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
