"""The first start: makes the environment that every later start finds, then goes on to the job.

``spark-submit.sh`` runs this file with any Python of 3.10 or later when the environment is missing or older than what
describes it; therefore it imports nothing but the standard library, and nothing of this project's. In the order of the
work:

| what | where | from |
|---|---|---|
| virtual environment | ``.venv``, or ROCKETMQ_STORE_SPARK_VENV | ``python -m venv`` |
| dependencies | in it | pyproject.toml; with the extra ``fast`` where numba has a wheel |
| Delta's jars | ``jars/`` in it | conf/delta-pom.xml with Maven; without Maven every start asks for ``--packages`` |
| compiled kernels | ``kernels/`` in it | numba, if it is there |
| class archive | ``spark.jsa`` in it | the JVM itself: classes of Spark as it wants them, 1.5 s less at every start |
| stamp | ``ready`` in it, last of all | path of java, digest of the sources of all this |

An interrupted set-up has no stamp and is done again; a lock lets one of several first starts work and the others wait.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
DESCRIBED_BY = (ROOT / "pyproject.toml", ROOT / "conf" / "delta-pom.xml", Path(__file__).resolve())
OLDEST_JAVA = 17
EX_UNAVAILABLE = 69

TRAINING = """
from jobs.spark.session import spark_session
with spark_session("training") as spark:
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
    spark.range(8).repartition(2).groupBy("id").count().collect()
"""


def say(text: str) -> None:
    """Tell the user; stdout belongs to the job's report."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def fail(what: str, advice: str = "") -> NoReturn:
    """End with the exit code for something that is missing."""
    say(f"error: {what}" + (f"\n  {advice}" if advice else ""))
    sys.exit(EX_UNAVAILABLE)


def digest() -> str:
    """Return a digest of everything that describes the environment; the settings of tools do not."""
    texts = [path.read_text(encoding="utf-8").partition("\n[tool.")[0] for path in DESCRIBED_BY]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def java_version(java: str) -> int:
    """Return the major version of a java program, 0 if it does not tell."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(version[1]) if version else 0


def check_java(java: str) -> None:
    """Return if the java program is new enough for Spark, else end."""
    version = java_version(java)
    if version < OLDEST_JAVA:
        fail(f"Java {OLDEST_JAVA} or later is needed; {java} is {version or 'no Java'}", "install it, or set JAVA_HOME")


def run(command: list[str], log: IO[str], **settings: str) -> bool:
    """Return whether a command succeeded; what it says goes to the log."""
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    return code_of(command, stdout=log, stderr=log, env=os.environ | settings, cwd=ROOT) == 0


def code_of(command: list[str], **settings: Any) -> int:
    """Return the exit code of a command, which ends when this process is told to end."""
    with subprocess.Popen(command, **settings) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise


def create_venv(venv: Path) -> None:
    """Make the virtual environment unless a working one is there; ends when this Python cannot."""
    python = venv / "bin" / "python"
    if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").is_file():
        fail(
            f"{venv} exists and is not a virtual environment",
            "remove it, or set ROCKETMQ_STORE_SPARK_VENV to another place",
        )
    if (
        python.exists()
        and subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    ):
        return
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", venv], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        reason = (made.stdout + made.stderr).strip().splitlines() or [""]
        fail(
            f"{sys.executable} cannot make a virtual environment: {reason[0]}",
            "on Debian and Ubuntu: apt install python3-venv",
        )


def requirements(*extras: str) -> list[str]:
    """Return the dependencies in pyproject.toml and those of the extras, also of extras that they name."""
    # Python 3.10 has no tomllib, but its pip carries the same.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli")
    project = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            nested = re.fullmatch(rf"{project['name']}\[(.*)\]", requirement)
            wanted += requirements(*nested[1].split(",")) if nested else [requirement]
    return list(dict.fromkeys(wanted))


def install(log: IO[str], *extras: str) -> None:
    """Install the dependencies and those of extras here, inside the environment; with numba where it has a wheel."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    wheels_only = ["--only-binary", "numba,llvmlite"]
    if run([*pip, *wheels_only, *requirements("fast", *extras)], log):
        return
    if not run([*pip, *requirements(*extras)], log):
        errors = [line for line in Path(log.name).read_text(encoding="utf-8").splitlines() if line.startswith("ERROR")]
        fail(
            f"the dependencies could not be installed: {errors[-1][7:] if errors else 'pip failed'}",
            f"all of it: {log.name}",
        )
    say("numba has no wheel for this machine: using numpy alone, which is slower")


def fetch_delta_jars(venv: Path, log: IO[str]) -> None:
    """Fill ``jars/`` with what Delta needs beyond Spark's own jars, or leave it out when there is no Maven."""
    maven = shutil.which("mvn")
    if maven is None:
        return
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    jars = Path(tempfile.mkdtemp(prefix="jars.", dir=venv))
    command = [
        maven, "--batch-mode", "--quiet", "--file", str(ROOT / "conf" / "delta-pom.xml"),
        "dependency:copy-dependencies", "-DincludeScope=runtime", "-DincludeGroupIds=io.delta,io.unitycatalog",
        f"-DoutputDirectory={jars}",
        f"-Dspark.minor={spark}", f"-Ddelta.version={importlib.metadata.version('delta-spark')}",
    ]  # fmt: skip
    home = os.environ.get("HOME", "")
    if not (home and os.access(home, os.W_OK)):
        command.append(f"-Dmaven.repo.local={venv / 'm2'}")
    fetched = run(command, log) and any(jars.glob("delta-spark*.jar"))
    shutil.rmtree(venv / "jars", ignore_errors=True)
    if fetched:
        jars.rename(venv / "jars")
    else:
        shutil.rmtree(jars)
        say(f"Maven could not fetch Delta's jars (see {log.name}): Spark will ask for them when a job needs them")


def archive_classes(venv: Path, log: IO[str]) -> None:
    """Make the class archive by a short run of Spark; where the path has blanks, the JVM ignores most of it."""
    target, draft = venv / "spark.jsa", venv / "spark.jsa.draft"
    target.unlink(missing_ok=True)
    draft.unlink(missing_ok=True)
    flags = f'-XX:ArchiveClassesAtExit="{draft}" -Xlog:cds=off -Xlog:cds+dynamic=off'
    if run([sys.executable, "-c", TRAINING], log, SPARK_SUBMIT_OPTS=flags, PYTHONPATH=str(ROOT)) and draft.is_file():
        draft.rename(target)


def fill(venv: Path, java: str) -> None:
    """Do everything that happens inside the environment; the stamp is the last thing written."""
    stamp = venv / "ready"
    with (venv / "setup.log").open("w", encoding="utf-8") as log:
        install(log)
        fetch_delta_jars(venv, log)
        # Without either everything works; the first jobs start later.
        run([sys.executable, "-m", "storeformat.kernels.compile"], log, PYTHONPATH=str(ROOT))
        archive_classes(venv, log)
    draft = venv / "ready.draft"
    draft.write_text(f"{java}\n{digest()}\n", encoding="utf-8")
    draft.replace(stamp)


def install_extra(venv: Path, extra: str) -> None:
    """Install an extra, unless that has been done since its description changed."""
    stamp = venv / f"ready-{extra}"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest():
        return
    say(f"installing what the extra {extra} needs (once)")
    with (venv / f"setup-{extra}.log").open("w", encoding="utf-8") as log:
        install(log, extra)
    stamp.write_text(digest(), encoding="utf-8")


def is_ready(venv: Path, java: str) -> bool:
    """Return whether the stamp tells of this very environment."""
    stamp = venv / "ready"
    return stamp.is_file() and stamp.read_text(encoding="utf-8").split("\n")[:2] == [java, digest()]


def set_up(venv: Path, java: str) -> None:
    """Bring the environment up to date, alone."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with venv.with_name(venv.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another start is setting things up: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if is_ready(venv, java):
            (venv / "ready").touch()
            return
        check_java(java)
        say(f"setting up {venv} (once, takes a minute or two)")
        create_venv(venv)
        inside = [
            str(venv / "bin" / "python"),
            str(Path(__file__).resolve()),
            "--fill",
            "--venv",
            str(venv),
            "--java",
            java,
        ]
        code = code_of(inside)
        if code != 0:
            sys.exit(code if code > 0 else 128 - code)


def split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return what stands before the first ``--`` and what stands behind it."""
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def main() -> NoReturn:
    """Set up what ``--venv`` names and become the job whose command line follows ``--``."""
    parser = argparse.ArgumentParser(description="makes the environment; run by spark-submit.sh")
    parser.add_argument("--venv", type=Path, default=sys.prefix)
    parser.add_argument("--java")
    parser.add_argument("--fill", action="store_true", help="the part that runs inside the environment")
    parser.add_argument("--extra", help="only install an extra of pyproject.toml; inside the environment")
    own, job = (sys.argv[1:], []) if "--" not in sys.argv else split_at_dashes(sys.argv[1:])
    arguments = parser.parse_args(own)
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.extra:
            install_extra(arguments.venv, arguments.extra)
            sys.exit(0)
        if arguments.fill:
            fill(arguments.venv, arguments.java)
            sys.exit(0)
        set_up(arguments.venv, arguments.java)
    except KeyboardInterrupt:
        if not arguments.fill:
            say("interrupted; the next start sets up again")
        sys.exit(130)
    except OSError as error:
        fail(f"setting up failed: {error}")
    if not job:
        sys.exit(0)
    python = str(arguments.venv / "bin" / "python")
    os.execv(python, [python, str(ROOT / "jobs" / "__main__.py"), *job])


if __name__ == "__main__":
    main()
