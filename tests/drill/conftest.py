"""The broker of each release, as it stands after the crash; shared by all drills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.drilling import Crashed, crash
from support.real_broker import RELEASES, BrokerSite


@pytest.fixture(scope="session", params=RELEASES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSite]:
    with BrokerSite(request.param, tmp_path_factory.mktemp(f"drill-{request.param}")) as site:
        yield site


@pytest.fixture(scope="session")
def crashed(site: BrokerSite) -> Crashed:
    return crash(site)
