"""The settings of a broker.conf on which its next start depends, with the broker's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storeformat.errors import WrongSettings
from storeformat.javaproperties import parse_properties
from storeformat.storage import files

LARGEST_CONF = 1 << 20


@dataclass(frozen=True)
class StartSettings:
    """Settings under their broker.conf names; ``from_broker_conf`` is false where no broker.conf was given: then sizes
    that are not named are those that the store shows.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    from_broker_conf: bool = True

    def text(self, name: str, default: str) -> str:
        return self.given.get(name, default).strip()

    def number(self, name: str, default: int) -> int:
        """Returns a number; raises WrongSettings for what is none."""
        text = self.text(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise WrongSettings(f"{name} is not an integer", found=text) from None

    def flag(self, name: str, *, default: bool) -> bool:
        return self.text(name, str(default)).lower() == "true"


def read_settings(broker_conf: str | None, settings: tuple[tuple[str, str], ...]) -> StartSettings:
    """Returns the settings of a broker.conf and of the command line, which wins; raises WrongSettings for a file of
    absurd length.
    """
    given: dict[str, str] = {}
    if broker_conf is not None:
        size = files.size_of(broker_conf)
        if size is not None and size > LARGEST_CONF:
            raise WrongSettings("this is not a broker.conf", path=broker_conf, found=size, expected="at most 1 MiB")
        given = dict(parse_properties(files.read_bytes(broker_conf).decode("utf-8", "replace")))
    return StartSettings({**given, **dict(settings)}, from_broker_conf=broker_conf is not None)
