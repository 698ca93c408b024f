"""A whole real broker: the published name server and broker of one release on loopback, and clients that use them.

Each runs in a process of its own, so that ``kill`` is a real ``kill -9``; what clients do (``tests/realstore/broker/``)
is one more for each call of ``clients``. No process outlives its test, however that ends: every server runs for as long
as its standard input is open, and that is held here. Everything written, logs too, lies in the scratch directory.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from support.real_store import JAVA_OPTIONS, build_driver

from storeformat.store import config_files

RELEASES = ("5.3.3", "5.5.0")
"""The releases of the drill: the last 5.3, which heals itself, and one that goes back ten segments at most."""
SINCE_5 = (*RELEASES, "5.1.4")
"""The same for what is older than queues in RocksDB: POP, timers."""

SETTINGS: Mapping[str, Any] = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 800,
    "maxMessageSize": 16_384,
    "mappedFileSizeTimerLog": 1 << 20,
    "deleteWhen": "04",
    "fileReservedTime": 24 * 365,
    "diskMaxUsedSpaceRatio": 95,  # no higher is taken
    "cleanFileForciblyEnable": False,
    "autoCreateTopicEnable": False,
    "enableCompaction": False,
    # offsets and the ends of transactions reach the disk at once, and no transaction is asked for again
    "flushConsumerOffsetInterval": 300,
    "flushDelayOffsetInterval": 300,
    "registerNameServerPeriod": 10_000,
    "transactionOpBatchInterval": 200,
    "transactionTimeOut": 3_600_000,
    "transactionCheckInterval": 3_600_000,
    # each flush compares a wheel of 38 MB byte by byte: once a second that is a sixth of a core for every idle broker
    "timerFlushIntervalMs": 20_000,
    "transactionMetricFlushInterval": 500,  # for so long a broker that starts loops without a pause
    # a machine that is slow is no reason to refuse a message
    "waitTimeMillsInSendQueue": 60_000,
    "waitTimeMillsInTransactionQueue": 60_000,
    "osPageCacheBusyTimeOutMills": 60_000,
}
BROKER, CLUSTER = "broker-a", "drill"

_SOURCES = Path(__file__).resolve().parent.parent / "realstore" / "broker"
_FIRST_OFFSETS = 11
"""Seconds after its start until a broker has written how far groups and delay levels are, for the first time."""
_START_TIMEOUT = 300
_STOP_TIMEOUT = 200
_REGISTERED = "new broker registered"
_FORGOTTEN = "remove from brokerLiveTable OK"
_CONNECTED = "HAClient connect to master 127.0.0.1"
_CLIENT_TIMEOUT = 900
_HEAP = ("-Xms64m", "-Xmx384m")
_NO_TLS = ("-Dtls.server.mode=disabled",)
"""Else each server makes itself a key, which takes a second of its start."""


class BrokerFailed(RuntimeError):
    """A server did not start or stop, or a client failed; the message holds the end of what it said."""


@dataclass
class Server:
    """A running Java main that ends with its standard input; ``output`` is the file it writes to."""

    process: subprocess.Popen[bytes]
    output: Path

    def await_words(self, words: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while words not in self.said():
            if self.process.poll() is not None or time.monotonic() > deadline:
                state = "ended" if self.process.poll() is not None else "says nothing"
                raise BrokerFailed(f"{self.output.stem} {state}: {self.said()[-3000:]}")
            time.sleep(0.05)

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(_STOP_TIMEOUT)
        self._close()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise BrokerFailed(f"{self.output.stem} does not stop") from error
        self._close()

    def _close(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


@dataclass
class BrokerSite:
    """A name server, and at most one broker at a time, over any store; a context manager."""

    release: str
    scratch: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    broker: Server | None = None
    _name_server: Server | None = None
    _starts: int = 0
    _complete_at: float = 0.0

    def __enter__(self) -> BrokerSite:  # noqa: PYI034  (Self is not in typing before Python 3.11)
        self.scratch.mkdir(parents=True, exist_ok=True)
        sources = sorted((_SOURCES / "src").rglob("*.java"))
        target = _SOURCES.parent / "target" / f"broker-{self.release}"
        self._class_path = build_driver(self.release, _SOURCES / "pom.xml", sources, target)
        self._name_server_port, self._broker_port = free_ports()
        conf = self.scratch / "namesrv.conf"
        facts = {"listenPort": self._name_server_port, "bindAddress": "127.0.0.1", **self._name_server_settings()}
        conf.write_text("".join(f"{name}={value}\n" for name, value in facts.items()), encoding="utf-8")
        try:
            self._name_server = self._serve("org.apache.rocketmq.namesrv.NamesrvStartup", conf, "name-server")
            self._name_server.await_words("The Name Server boot success")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _name_server_settings(self) -> Mapping[str, Any]:
        return {}

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self._name_server_port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._broker_port}"

    def broker_conf(self, store: Path, **more: Any) -> Path:
        """Returns the broker's configuration file for ``store``, written anew; ``more`` wins over all settings."""
        facts = {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "namesrvAddr": self.name_server,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self._broker_port,
            "haListenPort": self._broker_port + 1,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            **SETTINGS,
            **self.settings,
            **more,
        }
        lines = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in facts.items()]
        path = self.scratch / f"broker-{store.name}.conf"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def start(self, store: Path, **settings: Any) -> Server:
        """Returns the broker, up and known to the name server; ``settings`` are those of this start."""
        assert self.broker is None, "one broker at a time"
        known = self._registered()
        first = not (store / "config" / "consumerOffset.json").exists()
        self.broker = self._serve_broker(self.broker_conf(store, **settings))
        self.broker.await_words("boot success")
        self._complete_at = time.monotonic() + _FIRST_OFFSETS if first else 0.0
        self._await_registered(known + 1)
        return self.broker

    def kill(self) -> None:
        time.sleep(max(self._complete_at - time.monotonic(), 0))
        broker, self.broker = self.broker, None
        assert broker is not None
        self._end_broker(broker.kill)

    def stop(self) -> None:
        broker, self.broker = self.broker, None
        assert broker is not None
        self._end_broker(broker.stop)

    def _serve_broker(self, conf: Path) -> Server:
        self._starts += 1
        return self._serve("org.apache.rocketmq.broker.BrokerStartup", conf, f"broker-{self._starts}")

    def _registered(self) -> int:
        """How many brokers have made themselves known so far."""
        return self._name_server_said(_REGISTERED)

    def _await_registered(self, count: int) -> None:
        """A broker's first call may have failed on a busy machine; it calls again every ten seconds."""
        self._await_name_server(_REGISTERED, count)

    def _end_broker(self, end: Callable[[], None]) -> None:
        forgotten = self._name_server_said(_FORGOTTEN)
        end()
        # One that is back before the name server has noticed that it was gone would lose its routes.
        self._await_name_server(_FORGOTTEN, forgotten + 1)

    def _name_server_said(self, words: str) -> int:
        """How often some words are in what the name server logged of brokers."""
        logs = (self.scratch / "name-server").rglob("broker*.log")
        return sum(path.read_text(encoding="utf-8", errors="replace").count(words) for path in logs)

    def _await_name_server(self, words: str, count: int) -> None:
        deadline = time.monotonic() + _STOP_TIMEOUT
        while self._name_server_said(words) < count:
            if time.monotonic() > deadline:
                raise BrokerFailed(f"the name server does not say {words!r} for the {count}th time")
            time.sleep(0.05)

    def _await_log(self, name: str, words: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while not any(words in path.read_text("utf-8", "replace") for path in (self.scratch / name).rglob("store.log")):
            if time.monotonic() > deadline:
                raise BrokerFailed(f"the store of {name} does not log {words!r}")
            time.sleep(0.05)

    def store_log(self, start: int | None = None) -> str:
        """Returns what the broker's store logged since that start (default: the last one)."""
        home = self.scratch / f"broker-{start or self._starts}"
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(home.rglob("store.log")))

    def clients(self, *steps: Mapping[str, Any]) -> list[Any]:
        """Returns the answers to ``steps``, done in order by one client process."""
        with tempfile.TemporaryDirectory(prefix="clients-", dir=self.scratch) as home:
            job, result = Path(home, "job.json"), Path(home, "result.json")
            facts = {"name_server": self.name_server, "broker": self.address, "steps": list(steps)}
            job.write_text(json.dumps(facts), encoding="utf-8")
            line = [*self._java(Path(home)), "realbroker.Clients", str(job), str(result)]
            try:
                ran = subprocess.run(
                    line, check=False, capture_output=True, text=True, cwd=home, timeout=_CLIENT_TIMEOUT
                )
            except subprocess.TimeoutExpired as error:
                raise BrokerFailed(f"clients of {self.release} take too long: {steps}") from error
            if not result.exists():
                raise BrokerFailed(f"clients of {self.release}: {(ran.stdout + ran.stderr)[-4000:]}")
            return list(json.loads(result.read_text(encoding="utf-8"))["steps"])

    def run_java(self, *words: str) -> str:
        """Returns what a Java program with the release's jars said, a source file or a class and its arguments."""
        with tempfile.TemporaryDirectory(prefix="java-", dir=self.scratch) as home:
            ran = subprocess.run(
                [*self._java(Path(home)), *words], check=False, capture_output=True, text=True, cwd=home,
                timeout=_CLIENT_TIMEOUT,
            )  # fmt: skip
        if ran.returncode != 0:
            raise BrokerFailed(f"{words[0]}: {(ran.stdout + ran.stderr)[-4000:]}")
        return ran.stdout

    def _java(self, home: Path) -> list[str]:
        homes = [f"-D{name}={home}" for name in ("user.home", "rocketmq.home.dir", "java.io.tmpdir")]
        return ["java", *_HEAP, *JAVA_OPTIONS, *_NO_TLS, *homes, "-cp", self._class_path]

    def _serve(self, main: str, conf: Path, name: str) -> Server:
        home = self.scratch / name
        home.mkdir()
        line: Sequence[str] = [*self._java(home), "realbroker.Guarded", main, "-c", str(conf)]
        output = self.scratch / f"{name}.out"
        with output.open("wb") as said:
            process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT, cwd=home)
        return Server(process, output)

    def _end(self) -> None:
        for server in (self.broker, self._name_server):
            if server is not None:
                server.kill()
        self.broker = self._name_server = None


@dataclass
class BrokerPair(BrokerSite):
    """A name server, a master that acknowledges what its slave has, and that slave (DefaultHAService). A slave takes
    topics, offsets and groups from its master every minute (SlaveSynchronize), but one of 5.5.0 no offsets.
    """

    slave: Server | None = None

    def broker_conf(self, store: Path, **more: Any) -> Path:
        # 5.x acknowledges what the master alone has, unless it is told that two must have it
        return super().broker_conf(store, **{"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, **more})

    def slave_conf(self, store: Path) -> Path:
        return self.broker_conf(store, brokerId=1, brokerRole="SLAVE", listenPort=self._slave_port,
                                haListenPort=self._slave_port + 1)  # fmt: skip

    def start_slave(self, store: Path) -> Server:
        """Returns the slave, up, known to the name server and connected with its master."""
        assert self.slave is None, "one slave at a time"
        _, self._slave_port = free_ports()
        known = self._registered()
        self.slave = self._serve_broker(self.slave_conf(store))
        self.slave.await_words("boot success")
        self._await_registered(known + 1)
        self._await_log(f"broker-{self._starts}", _CONNECTED)
        return self.slave

    def kill_slave(self) -> None:
        slave, self.slave = self.slave, None
        assert slave is not None
        self._end_broker(slave.kill)

    def stop_slave(self) -> None:
        slave, self.slave = self.slave, None
        assert slave is not None
        self._end_broker(slave.stop)

    def _end(self) -> None:
        if self.slave is not None:
            self.slave.kill()
            self.slave = None
        super()._end()


@dataclass
class BrokerGroup(BrokerSite):
    """A name server with a controller, which elects any member alive, so that logs part; clients talk to ``master``."""

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
        self._end_broker(self.members.pop(name).stop)

    def kill_member(self, name: str) -> None:
        self._end_broker(self.members.pop(name).kill)

    def _end(self) -> None:
        for server in self.members.values():
            server.kill()
        self.members.clear()
        super()._end()


REPLICATED = ("commitlog", "config/topics.json", "config/consumerOffset.json")


def await_alike(master: Path, slave: Path, names: Sequence[str] = REPLICATED[:1]) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT
    while lacking := [name for name in names if not are_alike(master / name, slave / name)]:
        if time.monotonic() > deadline:
            raise BrokerFailed(f"the slave does not get {', '.join(lacking)}")
        time.sleep(0.3)


def are_alike(one: Path, other: Path) -> bool:
    shown = _shown(one)
    return shown is not None and shown == _shown(other)


def _shown(path: Path) -> object:
    """Returns what two brokers must have alike: the written part of a log, the tables of a file of ``config/``."""
    if path.is_dir():
        written = ((part.name, part.read_bytes().rstrip(b"\0")) for part in sorted(path.iterdir()))
        return [(name, data) for name, data in written if data]
    if not path.exists():
        return None
    try:
        document = config_files.parse(path.read_text(encoding="utf-8"))
    except ValueError:  # it is being written
        return None
    return [value for name, value in document.items() if name in ("topicConfigTable", "offsetTable")]


def free_ports() -> tuple[int, int]:
    """Returns a free port for a name server, and one for a broker, which also takes the next and the one two below."""
    for _ in range(100):
        with contextlib.ExitStack() as held:
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            name_server = int(first.getsockname()[1])
            broker = name_server - 10
            try:
                for port in (broker - 2, broker, broker + 1):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return name_server, broker
    raise BrokerFailed("no free ports")
