"""Settings of a broker.conf and of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from storeformat.errors import WrongSettings
from storeformat.store.broker_conf import BrokerConf, read_broker_conf


def test_the_command_line_wins(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(b"a = 1 \nmaxIndexNum = 2\nname = \xff\\u00fc\\t\n")
    assert read_broker_conf(str(conf), (("maxIndexNum", "3"), ("maxHashSlotNum", "4"))) == BrokerConf(
        {"a": "1 ", "maxIndexNum": "3", "maxHashSlotNum": "4", "name": "ÿü\t"}, path=str(conf)
    )
    assert read_broker_conf(None, ()) == BrokerConf({}, from_file=False)
    assert BrokerConf().from_file


def test_what_java_does_not_read(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(rb"brokerName = C:\users")
    with pytest.raises(WrongSettings, match="needs four hexadecimal digits"):
        read_broker_conf(str(conf))


def test_values_are_those_that_a_broker_takes() -> None:
    """As MixAll#properties2Object of 5.3.3 and 5.5.0 set them, called for these texts."""
    settings = BrokerConf({"n": "+7", "m": "7 ", "x": "0x7", "yes": "TRUE", "blank": "true ", "no": "yes", "t": " x "})
    assert [settings.number(name, 1) for name in ("n", "m", "x", "absent")] == [7, 1, 1, 1]
    assert [settings.flag(name, default=True) for name in ("yes", "blank", "no", "absent")] == [
        True,
        False,
        False,
        True,
    ]
    assert not settings.flag("absent", default=False)
    assert (settings.text("t", ""), settings.text("absent", " y ")) == ("x", "y")
    sizes = BrokerConf({"maxIndexNum": "many", "brokerName": "many", "deleteWhen": "04 "})
    assert list(sizes.not_taken()) == [("maxIndexNum", "many")]
    assert BrokerConf({"p": " /a, /b,,/a "}).paths("p") == ["/a", " /b"]


def test_a_value_that_shapes_files_and_is_not_taken() -> None:
    with pytest.raises(WrongSettings) as caught:
        BrokerConf({"maxIndexNum": "7 "}, path="b.conf").layout()
    assert str(caught.value) == (
        "maxIndexNum is not an integer: found 7 , expected bytes or a count, and no blank (b.conf)"
    )


def test_a_number_is_an_int_and_a_torn_file_is_refused(tmp_path: Path) -> None:
    conf = BrokerConf({"fileReservedTime": "2147483648", "deleteWhen": "04"})
    assert (conf.number("fileReservedTime", 72), list(conf.not_taken())) == (72, [("fileReservedTime", "2147483648")])
    (tmp_path / "broker.conf").write_bytes(b"storePathRootDir=/data\0\0\n")
    with pytest.raises(WrongSettings, match="is torn: a value holds a byte of zero"):
        read_broker_conf(str(tmp_path / "broker.conf"))
