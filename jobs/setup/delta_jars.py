"""The jars that Delta needs beside Spark's own: where they come from, and that their bytes are the published ones.

``conf/delta-jars.sha256`` names each with its SHA-256, so it does not matter whether a mirror, a cache or a directory
that somebody filled can be trusted. Standard library alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from jobs.setup.setup_steps import LeftOut, SetupError, StepProgress

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "conf" / "delta-pom.xml"
SUMS = ROOT / "conf" / "delta-jars.sha256"
JARS = "ROCKETMQ_STORE_SPARK_JARS"
"""Names the environment variable with a directory that has the jars already."""


RESOLVING = """
import sys
from jobs.spark import jvm, launch
from jobs.spark.execution import Execution
others = "org.*:*,com.*:*,javax.*:*,jakarta.*:*,commons-*:*,io.airlift:*,io.netty:*"
words = ["--packages", sys.argv[1], "--exclude-packages", others, "--conf", f"spark.jars.ivy={sys.argv[2]}"]
begun = jvm.begin(launch.plan(Execution(options=tuple(words), debug=True)))
jvm.end(begun, jvm.connect(begun), at_work=False)
"""


def known_sums(sums: Path | None = None) -> dict[str, str]:
    """Returns the SHA-256 of each jar that a file names, Delta's without one, by its name."""
    lines = (sums or SUMS).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if line and not line.startswith("#"))}


def sha256_of(path: Path) -> str:
    """Returns the digest of a file; ``hashlib.file_digest`` came with Python 3.11."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check(directory: Path, file: Path | None = None) -> None:
    """Raises SetupError unless the directory holds each jar that a file names, Delta's without one, with its own bytes,
    and no other.
    """
    sums = known_sums(file)
    there = {path.name: path for path in directory.glob("*.jar")}
    for name in sorted(sums.keys() | there.keys()):
        if name not in there:
            named = f"conf/{(file or SUMS).name}"
            raise SetupError(f"{directory} lacks {name}", f"{named} says which jars are needed")
        found, expected = sha256_of(there[name]), sums.get(name, "no such jar")
        if found != expected:
            raise SetupError(
                f"{name} is not the published one: SHA-256 found {found}, expected {expected} ({directory})",
                "it was changed on its way, or is of another version: check where it came from",
            )


def need_spark() -> bool:
    """Returns whether the resolver in Spark has to fetch them: no directory is named, and there is no Maven."""
    return not os.environ.get(JARS) and shutil.which("mvn") is None


def fetch(venv: Path, versions: dict[str, str], progress: StepProgress) -> str:
    """Fills ``jars/`` of the environment from a directory, by Maven or by Spark, whole or not at all; returns what was
    done. Without them jobs on tables are refused. Raises LeftOut if they cannot be fetched, SetupError if a jar is
    missing or is not the published one.
    """
    given, maven = os.environ.get(JARS), shutil.which("mvn")
    draft = Path(tempfile.mkdtemp(prefix="jars.", dir=venv))
    try:
        if given:
            copy(Path(given), draft)
        elif not (_maven(maven, draft, venv, versions, progress) if maven else _ivy(draft, venv, versions, progress)):
            reason = progress.errors("[ERROR] Failed", "[ERROR]").removeprefix("[ERROR]").strip()
            if "checksum" in reason.lower():
                raise SetupError(f"a jar is not the published one: {reason}", f"Maven's output: {progress.log}")
            who = "Maven" if maven else "Spark"
            raise LeftOut(f"{who} could not fetch them ({progress.log}): load and report need a --setup that can")
        check(draft)
        shutil.rmtree(venv / "jars", ignore_errors=True)
        draft.rename(venv / "jars")
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    sizes = [path.stat().st_size for path in (venv / "jars").glob("*.jar")]
    return f"{len(sizes)} of Delta, {sum(sizes) / 1e6:.0f} MB, each with its SHA-256"


def copy(source: Path, target: Path) -> None:
    """Copies the jars that are needed, and no others of the directory; raises SetupError if one is missing."""
    for name in known_sums():
        if not (source / name).is_file():
            raise SetupError(f"{JARS}: {source} lacks {name}", f"conf/{SUMS.name} says which jars are needed")
        shutil.copy(source / name, target / name)


def _ivy(target: Path, venv: Path, versions: dict[str, str], progress: StepProgress) -> bool:
    """Returns whether the resolver inside Spark brought them; nothing of them is run."""
    progress.text = "with Spark"
    spark = ".".join(versions["pyspark"].split(".")[:2])
    coordinate = f"io.delta:delta-spark_{spark}_2.13:{versions['delta-spark']}"
    with tempfile.TemporaryDirectory(prefix="jars.", dir=venv) as cache:
        command = [str(venv / "bin" / "python"), "-c", RESOLVING, coordinate, cache]
        if not progress.run(command, environment={"PYTHONPATH": str(ROOT)}):
            return False
        for path in Path(cache, "jars").glob("*.jar"):
            shutil.copy(path, target / path.name.partition("_")[2])  # its group goes before: io.delta_delta-storage-...
    return True


def _maven(maven: str, target: Path, venv: Path, versions: dict[str, str], progress: StepProgress) -> bool:
    """Returns whether Maven brought them; it ends at a checksum that the repository itself contradicts."""
    progress.text = "with Maven"
    command = [
        maven, "--batch-mode", "--strict-checksums", "--file", str(POM), "dependency:copy-dependencies",
        "-DincludeScope=runtime", "-DincludeGroupIds=io.delta,io.unitycatalog", f"-DoutputDirectory={target}",
        f"-Dspark.minor={'.'.join(versions['pyspark'].split('.')[:2])}", f"-Ddelta.version={versions['delta-spark']}",
    ]  # fmt: skip
    home = os.environ.get("HOME", "")
    if not (home and os.access(home, os.W_OK)):
        command.append(f"-Dmaven.repo.local={venv / 'm2'}")

    def hear(line: str) -> None:
        if match := re.search(r"Download\w+ from \S+: \S*/(\S+)", line):
            progress.text = match[1]

    return progress.run(command, hear) and any(target.glob("delta-spark*.jar"))
