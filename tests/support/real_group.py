"""A controller's group: members of one broker name, of which the controller makes one the master.

The controller runs in the name server (``enableControllerInNamesrv``), and elects a member that is alive, whatever it
lacks (``enableElectUncleanMaster``): so that logs part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.real_broker import BrokerSite, Server, free_ports


@dataclass
class BrokerGroup(BrokerSite):
    """A name server with a controller, and members by name; ``master`` is the one that clients are to talk to."""

    master: str = ""
    members: dict[str, Server] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)
    _controller_port: int = 0

    def __enter__(self) -> BrokerGroup:  # noqa: PYI034  (Self is not in typing before Python 3.11)
        self._controller_port, _ = free_ports()
        super().__enter__()
        assert self._name_server is not None
        self._name_server.await_words("The ControllerManager boot success")
        return self

    def _name_server_settings(self) -> Mapping[str, Any]:
        return {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self._controller_port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": self.scratch / "controller",
            "mappedFileSize": 1 << 20,
            "enableElectUncleanMaster": "true",
            "scanInactiveMasterInterval": 1000,
        }

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports[self.master]}"

    def member_conf(self, name: str, store: Path) -> Path:
        """Returns the configuration file of a member with that store, written anew."""
        port = self._ports.setdefault(name, free_ports()[1])
        return self.broker_conf(
            store, brokerId=-1, brokerRole="SLAVE", enableControllerMode=True, listenPort=port, haListenPort=port + 1,
            controllerAddr=f"127.0.0.1:{self._controller_port}", syncControllerMetadataPeriod=1000,
            syncBrokerMetadataPeriod=1000,
        )  # fmt: skip

    def start_member(self, name: str, store: Path) -> None:
        """Returns when a member is up and has its role."""
        known = self._registered()
        self.members[name] = self._serve_broker(self.member_conf(name, store))
        self.members[name].await_words("boot success")
        self._await_registered(known + 1)

    def stop_member(self, name: str) -> None:
        """Shuts a member down cleanly."""
        self._end_broker(self.members.pop(name).stop)

    def kill_member(self, name: str) -> None:
        """kill -9 of a member."""
        self._end_broker(self.members.pop(name).kill)

    def _end(self) -> None:
        for server in self.members.values():
            server.kill()
        self.members.clear()
        super()._end()
