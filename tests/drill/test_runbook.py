"""The runbook: every command of README's section "Recovery" is run, in its order, on a store that has the symptom.

Under each heading the commands run as they stand there: paths, topic, key and offset of the examples are replaced by
those of a store that a real broker wrote, ``./spark-submit.sh`` by this Python. A comment ``# exit N`` is the expected
exit code, none means 0. A heading without a prepared symptom fails, and so does a symptom without its heading.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import golden
from support.drilling import overwrite, run_job, wipe

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
ENTRY = "./spark-submit.sh "
_TIMEOUT = 240


@dataclass(frozen=True)
class Case:
    """A store with a symptom (``words``: what replaces the examples' own), and what must hold in the end."""

    root: Path
    words: Mapping[str, str]
    conf: Path

    @property
    def healed(self) -> bool:
        """Whether ``verify`` finds nothing any more."""
        return run_job("verify", "--store", self.root, "--broker-conf", self.conf).code == 0


def section(text: str) -> dict[str, list[str]]:
    """Heading to commands, of the README's recovery section."""
    _, _, rest = text.partition("\n## Recovery\n")
    found: dict[str, list[str]] = {}
    heading, inside = "", False
    for line in re.split(r"\n## ", rest)[0].splitlines():
        if line.startswith("### "):
            heading = line[4:]
        elif line.startswith("```"):
            inside = line == "```sh"
        elif inside and line.strip():
            found.setdefault(heading, []).append(line)
    return found


# ------------------------------------------------------------------------------------------------------------- symptoms
def queue_ends_in_an_empty_file(root: Path) -> None:
    """What keeps a broker of 5.0 or later from starting (apache/rocketmq#9728)."""
    last = sorted(path for path in (root / "consumequeue").rglob("0*") if path.is_file())[-1]
    size = last.stat().st_size
    last.with_name(f"{int(last.name) + size:020d}").write_bytes(bytes(size))


def queues_are_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def nothing(root: Path) -> None:
    """The store as its broker left it."""


def index_is_empty(root: Path) -> None:
    """Headers and entries are there, the slots are not: no chain begins anywhere."""
    for path in (root / "index").iterdir():
        content = bytearray(path.read_bytes())
        content[40:440] = bytes(400)
        path.write_bytes(content)


def log_is_damaged(root: Path) -> None:
    overwrite(root, 300_000, 300_700)
    wipe(root)


def unit_points_elsewhere(root: Path) -> None:
    path = queue_directory(root) / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[20:28] = content[0:8]
    path.write_bytes(content)


def replica_beside_it(root: Path) -> None:
    shutil.copytree(root, root.parent / "replica")


SYMPTOMS: dict[str, tuple[str, Callable[[Path], None], bool]] = {
    # heading: the store, what is done to it, whether verify must be run in the end, for the commands do not
    "What is wrong?": ("base-clean-5.3.3", nothing, False),
    "The broker does not start": ("base-killed-5.3.3", queue_ends_in_an_empty_file, False),
    "Consumers read nothing": ("base-clean-5.1.4", queues_are_gone, True),
    "A key is not found": ("base-clean-5.3.3", index_is_empty, True),
    "The disk is damaged": ("base-larger-5.3.3", log_is_damaged, False),
    "One queue is broken": ("base-clean-5.3.3", unit_points_elsewhere, True),
    "A replica to compare": ("base-clean-5.3.3", replica_beside_it, False),
    "After an upgrade to 5.4 or later": ("base-killed-5.5.0", wipe, True),
    "The way back": ("base-killed-5.3.3", queue_ends_in_an_empty_file, False),
}


def queue_directory(root: Path) -> Path:
    """The queue of the examples: that with the most bytes in its first file's units."""
    files = sorted((root / "consumequeue").glob(f"*/*/{0:020d}"))
    return max(files, key=lambda path: len(path.read_bytes().rstrip(b"\0"))).parent


def prepare(heading: str, work: Path) -> Case:
    name, spoil, _ = SYMPTOMS[heading]
    root = golden.unpack(name, work)
    (store,) = golden.stores(name)
    conf = work / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in store.entry["settings"].items()), encoding="utf-8")
    queue = queue_directory(root)
    key = next(item for item in store.entry["answers"]["queries"] if len(item["commitLogOffsets"]) == 1)
    words = {
        "/data/rocketmq/store": str(root),
        "/etc/rocketmq/broker.conf": str(conf),
        "/data/rebuilt-replica": str(work / "rebuilt-replica"),
        "/data/rebuilt": str(work / "rebuilt"),
        "/data/replica/store": str(work / "replica"),
        "/data/salvage.json": str(work / "salvage.json"),
        "TopicTest:3": f"{queue.parent.name}:{queue.name}",
        "--topic TopicTest --key order-4711": f"--topic '{key['topic']}' --key '{key['key']}'",
        "1073741824": str(store.entry["log"]["end_offset"]),
    }
    spoil(root)
    return Case(root, words, conf)


def run(line: str, words: Mapping[str, str]) -> tuple[int, int, str]:
    """The exit code that a line has, the one it should have, and what it said."""
    command, _, comment = line.partition("#")
    for word, real in words.items():
        command = command.replace(word, real)
    assert not re.search(r"/data/|/etc/|TopicTest|order-4711", command), f"an example without its place: {line}"
    if command.startswith(ENTRY):
        command = f"'{sys.executable}' -m jobs {command[len(ENTRY) :]}"
    expected = re.search(r"exit (\d+)", comment)
    ran = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    return ran.returncode, int(expected[1]) if expected else 0, ran.stdout + ran.stderr


COMMANDS = section((ROOT / "README.md").read_text(encoding="utf-8"))


def test_every_heading_has_its_symptom() -> None:
    assert list(COMMANDS) == list(SYMPTOMS)


@pytest.mark.parametrize("heading", SYMPTOMS)
def test_the_commands_do_what_they_say(heading: str, tmp_path: Path) -> None:
    case = prepare(heading, tmp_path)
    before = log(case.root)
    for line in COMMANDS[heading]:
        code, expected, said = run(line, case.words)
        assert code == expected, f"{line}\n{said}"
    assert log(case.root) == before, "nothing here changes the log"
    assert case.healed or not SYMPTOMS[heading][2]
    if heading == "The disk is damaged":
        report = json.loads((tmp_path / "salvage.json").read_text(encoding="utf-8"))
        assert report["damaged_ranges"]
        assert report["lost_messages"] > 0
        assert (case.root / "consumequeue").is_dir()
    if heading == "The way back":
        assert (case.root / "abort").exists()


def log(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
