"""All settings of a broker.conf, by ``settings.csv``: which there are, and what of a store depends on each.

==============  ======================================================================================================
column          says
==============  ======================================================================================================
name, class     MessageStoreConfig or BrokerConfig; empty for BrokerIdentity, NettyServerConfig, NettyClientConfig,
                AuthConfig and the tiered store's
releases        those of 4.9.8, 5.1.4, 5.3.3 and 5.5.1 that have the setter, as ``javap`` lists it
effect          ``files``: what files hold; ``kept``: what a start keeps or finds; ``delivered``: what is delivered;
                none where it is of threads, memory, networks, metrics or authentication
==============  ======================================================================================================

Effects are by the uses of each getter in these releases. Some names promise more than they do:
``maxRecoveryCommitlogFiles`` and ``enableCleanExpiredOffset`` are read nowhere. MixAll#properties2Object calls setters.
"""

from __future__ import annotations

import csv
import difflib
from importlib import resources

_TABLE = resources.files("storeformat.store").joinpath("settings.csv").read_text(encoding="ascii")
EFFECTS = {row["name"]: row["effect"] for row in csv.DictReader(_TABLE.splitlines())}
"""What depends on a setting, "" for nothing of a store."""


def nearest_names(name: str) -> list[str]:
    """Returns up to three names that somebody may have meant, the likeliest first; upper and lower case are alike."""
    by_lower = {known.lower(): known for known in EFFECTS}
    return [by_lower[found] for found in difflib.get_close_matches(name.lower(), sorted(by_lower), 3, 0.7)]
