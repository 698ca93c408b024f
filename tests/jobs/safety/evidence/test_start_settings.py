"""Settings of a broker.conf and of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.safety.evidence.start_settings import StartSettings, read_settings
from storeformat.errors import WrongSettings


def test_the_command_line_wins(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(b"a = 1\nb = 2\nname = \xff\n")
    assert read_settings(str(conf), (("b", "3"), ("c", "4"))) == StartSettings(
        {"a": "1", "b": "3", "c": "4", "name": "\ufffd"}, from_broker_conf=True
    )
    assert read_settings(None, ()) == StartSettings({}, from_broker_conf=False)
    assert StartSettings().from_broker_conf


def test_values_are_read_without_the_blanks_around_them() -> None:
    settings = StartSettings({"n": " 7 ", "yes": " TRUE ", "no": "yes", "t": " x "})
    assert (settings.number("n", 1), settings.number("m", 2)) == (7, 2)
    assert [settings.flag(name, default=True) for name in ("yes", "no", "absent")] == [True, False, True]
    assert not settings.flag("absent", default=False)
    assert (settings.text("t", ""), settings.text("absent", " y ")) == ("x", "y")


def test_what_is_no_number() -> None:
    with pytest.raises(WrongSettings) as caught:
        StartSettings({"n": "big"}).number("n", 1)
    assert str(caught.value) == "n is not an integer: found big"


def test_a_file_of_absurd_length_is_no_broker_conf(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(b"#" * (1 << 20))
    assert read_settings(str(conf), ()) == StartSettings()
    conf.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(WrongSettings) as caught:
        read_settings(str(conf), ())
    assert str(caught.value) == f"this is not a broker.conf: found 1048577, expected at most 1 MiB ({conf})"
