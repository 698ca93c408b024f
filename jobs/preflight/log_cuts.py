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
from typing import Any

from jobs.preflight.reason import Reason
from jobs.preflight.stopped_store import StoppedStore
from storeformat.javacompat import parse_int
from storeformat.javaproperties import as_written
from storeformat.store.layout import StoreLayout
from storeformat.store.setting_names import EFFECTS

_CHOICES = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
}
"""Settings whose setters take these words alone, the first by default (MessageStoreConfig#setBrokerRole)."""
_DEFAULTS = {name: str(value).lower() for name, value in StoreLayout().settings().items()} | {
    "fileReservedTime": "72", "diskMaxUsedSpaceRatio": "75",
}  # fmt: skip
_MARK = "\xef\xbb\xbf"
"""A byte order mark of UTF-8, as Java reads it."""
_PATHS = ("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "storePathDLedgerCommitLog")


def settings_not_taken(store: StoppedStore) -> Iterator[Reason]:
    """Yields values of broker.conf that the broker passes over, or with which it ends.

    Mirrors Properties#load, MixAll#properties2Object, UtilAll#isItTimeToDo and BrokerStartup (4.9.8 to 5.5.0).
    """
    for what, found, expected, cure, unsafe in _not_taken(store):
        yield Reason("setting_not_taken", what, found, expected, f"{cure} in broker.conf", unsafe)


def _not_taken(store: StoppedStore) -> Iterator[tuple[str, str, Any, str, bool]]:
    """Yields what a reason says, what was found and expected, the cure, and whether it is unsafe."""
    conf, trims = store.conf, store.rules.trims_settings
    for name, text in conf.not_taken():
        meant, said = text.strip(), f"the broker does not take {name}='{text}', and says nothing: "
        unsafe = bool(EFFECTS.get(name)) and meant != _DEFAULTS.get(name)
        if meant.lower() != "true" and parse_int(meant) is None:
            yield f"{said}its default stands", text, "a number below 2^31", f"write {name} as a whole number", unsafe
        else:
            then = "it is false" if meant.lower() == "true" else "its default stands"
            yield f"{said}{then}", text, meant, f"write {name}={as_written(meant)}, without a blank at its end,", unsafe
    for name, choices in _CHOICES.items():
        text = conf.given.get(name, choices[0])
        if (text.strip() if trims else text) not in choices:
            said = f"the broker does not take {name}='{text}', and says nothing: it is {choices[0]}"
            unsafe = name == "brokerRole" and text.strip() != choices[0]
            yield said, text, list(choices), f"write {name} as one of {', '.join(choices)}", unsafe
    marked = next((name for name in conf.given if name.startswith(_MARK)), None)
    if marked is not None:
        meant = marked.removeprefix(_MARK)
        said = f"broker.conf begins with a byte order mark, and the broker does not know its first setting, {meant}"
        yield said, _MARK, meant, "leave out the byte order mark", bool(EFFECTS.get(meant))
    hours = conf.given.get("deleteWhen", "04")
    named = [hour.strip() if trims else hour for hour in hours.rstrip(";").split(";") if hours.strip(";")]
    if any(parse_int(hour) is None for hour in named):
        said = f"deleteWhen has '{hours}', which are no hours: the broker deletes nothing, however full the disk is"
        yield said, hours, "hours, such as 04 or 04;16", "write hours, such as deleteWhen=04,", False
    others = any(conf.flag(name, default=False) for name in ("enableControllerMode", "enableDLegerCommitLog"))
    if store.is_slave and not others and conf.number("brokerId", 0) <= 0:
        said = f"a slave needs a brokerId above 0, and has {conf.text('brokerId', '0')}: the broker does not start"
        yield said, conf.text("brokerId", "0"), "above 0", "set brokerId=1", True
    for name in _PATHS:
        text = conf.given.get(name, "")
        if text != text.strip() and not trims:
            said = f"{name}='{text}' has a blank that a broker before 5.2.0 takes for a part of the path"
            cure = f"write {name}={as_written(text.strip())}, without a blank at its end,"
            yield said, text, text.strip(), cure, True


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
