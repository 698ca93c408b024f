"""The first start: makes the environment that every later start finds, then goes on to the job.

``spark-submit.sh`` runs this file with any Python that it found when the environment is missing or older than what
describes it; therefore it imports the standard library alone, and modules of ours that do the same. Steps that
need nothing of each other run at once:

| step | where | from |
|---|---|---|
| environment | ``.venv``, or ROCKETMQ_STORE_SPARK_VENV | ``python -m venv`` |
| jars | ``jars/`` in it | ``delta_jars`` |
| libraries | in it | ``conf/requirements``, numba where it has a wheel |
| kernels | ``kernels/`` in it | numba, if it is there |
| Spark | in it | the same; it is built here, by what the libraries brought |
| class archive | ``spark.jsa`` in it | the JVM itself: classes of Spark as it wants them, 1.5 s less at every start |
| stamp | ``ready`` in it, last of all | path of java, digest of the sources of all this |

Packages come from the package index, or from the directory ROCKETMQ_STORE_SPARK_WHEELS. ``conf/requirements`` names the
SHA-256 of each file that may be installed, and pip takes no other. ``.ci/lock`` writes it from pyproject.toml.

An interrupted set-up has no stamp; the next one goes on where it ended. A lock lets one of several first starts work
while the others wait.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
# A script's own directory leads sys.path; modules of ours are found as packages only.
sys.path[:] = [str(ROOT), *(entry for entry in sys.path if entry not in (str(ROOT), str(ROOT / "jobs" / "spark")))]

from jobs.setup import bundle, delta_jars, packing, s3_jars  # noqa: E402  (only now the path is right)
from jobs.setup.java import OLDEST, version_of  # noqa: E402
from jobs.setup.setup_steps import LeftOut, SetupError, Step, StepProgress, Steps, say  # noqa: E402
from storeformat.errors import WriteFailed  # noqa: E402

PROJECT = ROOT / "pyproject.toml"
REQUIREMENTS = ROOT / "conf" / "requirements"
SETUP = REQUIREMENTS / "setup.txt"
DESCRIBED_BY = (PROJECT, SETUP, delta_jars.POM, delta_jars.SUMS, Path(__file__).resolve(), Path(delta_jars.__file__))
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 14)
EX_USAGE, EX_UNAVAILABLE, EX_IOERR = 64, 69, 74
WHEELS = "ROCKETMQ_STORE_SPARK_WHEELS"
"""Names the environment variable with a directory of wheels; then no package index is asked."""
SPARK = ("pyspark", "delta-spark")
"""Packages that need none of the libraries, and take as long as all of them."""
NUMBA = ("numba", "llvmlite")
"""Packages that have no wheels for some machines; the rest goes without them."""

TRAINING = """
from jobs.spark.execution import BROUGHT
from jobs.spark.session import spark_session
with spark_session(BROUGHT) as spark:
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
    spark.range(8).repartition(2).groupBy("id").count().collect()
"""


# ------------------------------------------------------------------------------------------------ what is refused first
def check_python() -> None:
    """Raises SetupError where this Python cannot run the program, before anything is made."""
    found = sys.version_info[:2]
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST_PYTHON, NEWEST_PYTHON))
    reason = ""
    if not OLDEST_PYTHON <= found <= NEWEST_PYTHON:
        reason = f"Python {oldest} to {newest} is needed, this is {platform.python_version()}"
    elif platform.python_implementation() != "CPython" or sys.maxsize < 2**32:
        reason = f"a 64-bit CPython is needed, this is {platform.python_implementation()} {platform.architecture()[0]}"
    elif importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{sys.executable} cannot make a virtual environment: it has no venv and ensurepip",
            "on Debian and Ubuntu: apt install python3-venv",
        )
    if reason:
        raise SetupError(f"{reason} ({sys.executable})", "name another in ROCKETMQ_STORE_SPARK_PYTHON")


def check_venv(venv: Path) -> None:
    """Raises SetupError where something else lies in the environment's place."""
    ours = re.compile(r"steps|setup-.*\.log|(jars|bundle)(\..*)?")
    others = [path.name for path in venv.iterdir() if not ours.fullmatch(path.name)] if venv.exists() else []
    if others and not (venv / "pyvenv.cfg").is_file():
        raise SetupError(
            f"{venv} exists and is not a virtual environment",
            "remove it, or set ROCKETMQ_STORE_SPARK_VENV to another place",
        )


# ------------------------------------------------------------------------------------------------------------- packages
def locked(lock: Path, left_out: Collection[str] = ()) -> str:
    """Return a file of ``conf/requirements``, less some packages; a package is a line and those indented after it."""
    packages = re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8"))
    return "\n".join(package for package in packages if package.partition("==")[0] not in left_out)


def pinned_versions() -> dict[str, str]:
    """Return the versions of Spark and Delta, which pyproject.toml pins."""
    return dict(re.findall(r'"([a-z-]+)==([\d.]+)"', PROJECT.read_text(encoding="utf-8")))


def pip_install(venv: Path, wanted: str, progress: StepProgress, *more: str) -> str:
    """Install what a text of requirements names, each file with one of its hashes; return what and how much that is,
    raise SetupError if pip fails.
    """
    forget_half_installed(venv)
    installed: list[str] = []

    def hear(line: str) -> None:
        if match := re.search(r"(?:Downloading|Using cached) (\S+?)-\d\S* \((.*)\)", line):
            progress.text = f"{match[1]} ({match[2]})"
        elif line.startswith(("Installing collected", "Building wheels")):
            progress.text = line.partition(":")[0].lower()
        elif line.startswith("Successfully installed"):
            installed.extend(line.split()[2:])

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=venv, prefix="requirements.", suffix=".txt") as file:
        file.write(wanted)
        file.flush()
        command = [
            str(venv / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check",
            "--progress-bar", "off", "--no-compile", "--only-binary", ",".join(NUMBA), *wheel_options(),
            "--require-hashes", "-r", file.name, *more,
        ]  # fmt: skip
        done = progress.run(command, hear)
    if not done:
        bundle.check_hashes(progress)
        reason = progress.errors("ERROR").removeprefix("ERROR:").strip() or "pip failed"
        raise SetupError(f"the dependencies could not be installed: {reason}", f"pip's output: {progress.log}")
    sizes = {name: megabytes_of(venv, name) for name in installed}
    named = sorted((name for name in sizes if sizes[name] >= 10), key=lambda name: -sizes[name])
    shown = ", ".join(f"{name} {sizes[name]:.0f} MB" for name in named)
    if not sizes:
        return "up to date"
    return f"{len(sizes)} packages, {sum(sizes.values()):.0f} MB" + (f": {shown}" if shown else "")


def megabytes_of(venv: Path, installed: str) -> float:
    """Return the megabytes of an installed package, which is named as pip does: ``numpy-2.4.6``."""
    name, _, version = installed.rpartition("-")
    pattern = f"lib/python3.*/site-packages/{re.sub('[-_.]+', '_', name)}-{version}.dist-info/RECORD"
    records = [record for record in venv.glob(pattern) if record.is_file()]
    lines = records[0].read_text(encoding="utf-8").splitlines() if records else []
    return sum(int(line.rpartition(",")[2] or 0) for line in lines) / 1e6


def wheel_options() -> list[str]:
    """Return pip's options for a directory of wheels, if one is given; raise SetupError if it does not exist."""
    directory = os.environ.get(WHEELS)
    if not directory:
        return []
    if not Path(directory).is_dir():
        raise SetupError(f"{WHEELS}: there is no directory {directory}")
    return ["--no-index", "--find-links", str(Path(directory).absolute())]


def forget_half_installed(venv: Path) -> None:
    """Remove what pip takes for installed although it was killed before it had unpacked all of it."""
    for about in venv.glob("lib/python3.*/site-packages/*.dist-info"):
        record = about / "RECORD"
        files = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
        names = [line.rsplit(",", 2)[0].strip('"') for line in files]
        looked_at = [name for name in names if not name.endswith(".pyc") and not name.startswith("..")]
        if not files or not all((about.parent / name).exists() for name in looked_at):
            shutil.rmtree(about)


def install_with_numba(venv: Path, left_out: tuple[str, ...], progress: StepProgress, *more: str) -> str:
    """Install what ``setup.txt`` names, less what is left out; with numba where it has a wheel."""
    try:
        return pip_install(venv, locked(SETUP, left_out), progress, *more)
    except bundle.NotPublished:
        raise
    except SetupError:
        installed = pip_install(venv, locked(SETUP, (*left_out, *NUMBA)), progress, *more)
    return f"{installed}; numba has no wheel for this machine: numpy alone is slower"


def install_spark(venv: Path, progress: StepProgress) -> str:
    """Install Spark; its source is built by the setuptools of the environment, which are locked, too."""
    others = set(re.findall(r"^[\w-]+(?===)", locked(SETUP), re.MULTILINE)) - set(SPARK)
    return pip_install(venv, locked(SETUP, others), progress, "--no-build-isolation", "--use-pep517")


# ------------------------------------------------------------------------------------------------------------ the steps
def create_venv(venv: Path, progress: StepProgress) -> str:
    """Make the virtual environment unless a working one is there; raise SetupError if this Python cannot."""
    python, made = venv / "bin" / "python", venv / "pyvenv.cfg"
    if python.exists() and progress.run([str(python), "-m", "pip", "--version"]):
        version = (
            re.search(r"^version\w* = (\S+)", made.read_text(encoding="utf-8"), re.MULTILINE) if made.exists() else None
        )
        return f"Python {version[1] if version else 'of unknown version'}, {venv}"
    shutil.rmtree(venv / "lib", ignore_errors=True)
    if not progress.run([sys.executable, "-m", "venv", str(venv)]):
        reason = (progress.log.read_text(encoding="utf-8").strip().splitlines() or [""])[-1]
        raise SetupError(f"{sys.executable} cannot make a virtual environment: {reason}")
    return f"Python {platform.python_version()}, {venv}"


def compile_kernels(venv: Path, progress: StepProgress) -> str:
    """Compile the kernels into the environment; raise LeftOut if that fails, and the first job does it."""
    code = [str(venv / "bin" / "python"), "-m", "storeformat.kernels.compile"]
    if not progress.run(code, environment={"PYTHONPATH": str(ROOT)}):
        raise LeftOut(f"not compiled ({progress.log}): jobs try again")
    return "compiled" if "numba" in progress.log.read_text(encoding="utf-8") else "numpy alone, nothing to compile"


def compile_bytecode(venv: Path, progress: StepProgress) -> str:
    """Compile what was installed, and this program: where PYTHONDONTWRITEBYTECODE is set, as in containers, each start
    would do it anew. Raise LeftOut where files may not be written.
    """
    installed = map(str, venv.glob("lib/python3.*/site-packages"))
    ours = (str(ROOT / name) for name in ("jobs", "udfs", "storeformat"))
    if not progress.run([str(venv / "bin" / "python"), "-m", "compileall", "-q", "-j", "0", *installed, *ours]):
        raise LeftOut(f"not all compiled ({progress.log}): starts may take a second longer")
    return "compiled"


def archive_classes(venv: Path, java: str, progress: StepProgress) -> str:
    """Make the class archive by a short run of Spark; where the path has blanks, the JVM ignores most of it. Raise
    LeftOut if that run fails, or there is no Java that Spark takes: jobs that need none go without.
    """
    version = version_of(java) if java else 0
    if version < OLDEST:
        found = f"{java} is {version or 'no Java'}" if java else "there is none"
        raise LeftOut(f"Spark needs Java {OLDEST} or later, and {found}: only jobs that read little will do")
    target, draft = venv / "spark.jsa", venv / "spark.jsa.draft"
    target.unlink(missing_ok=True)
    draft.unlink(missing_ok=True)
    settings = {
        "SPARK_SUBMIT_OPTS": f'-XX:ArchiveClassesAtExit="{draft}" -Xlog:cds=off -Xlog:cds+dynamic=off',
        "PYTHONPATH": str(ROOT),
        "ROCKETMQ_STORE_SPARK_KERNELS": "numpy",  # the others may be compiling just now
    }
    if not progress.run([str(venv / "bin" / "python"), "-c", TRAINING], None, settings) or not draft.is_file():
        raise LeftOut(f"not made ({progress.log}): starts take 1.5 s longer")
    draft.rename(target)
    return f"Java {version}, {target.stat().st_size / 1e6:.0f} MB"


def steps_of(venv: Path, java: str) -> list[Step]:
    """Return the steps; the key of each is all that it was made from."""
    packages = hashlib.sha256(SETUP.read_bytes()).hexdigest()
    java_and_packages = f"{java}\n{Path(java).resolve()}\n{packages}"
    return [
        Step("environment", partial(create_venv, venv), f"{sys.version}\n{sys.prefix}"),
        Step(
            "jars",
            partial(delta_jars.fetch, venv, pinned_versions()),
            hashlib.sha256(delta_jars.SUMS.read_bytes() + delta_jars.POM.read_bytes()).hexdigest(),
            after=("Spark",) if delta_jars.need_spark() else (),
        ),
        Step("libraries", partial(install_with_numba, venv, SPARK), packages, after=("environment",)),
        Step("kernels", partial(compile_kernels, venv), packages, after=("libraries",)),
        Step("Spark", partial(install_spark, venv), packages, after=("libraries",)),
        Step("bytecode", partial(compile_bytecode, venv), f"{packages}\n{ROOT}", after=("Spark",)),
        Step("class archive", partial(archive_classes, venv, java), java_and_packages, after=("Spark",)),
    ]


def digest() -> str:
    """Return a digest of everything that describes the environment; the settings of tools do not."""
    texts = [path.read_text(encoding="utf-8").partition("\n[tool.")[0] for path in DESCRIBED_BY]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def is_ready(venv: Path, java: str) -> bool:
    """Return whether the stamp tells of this very environment, and nothing was left out that can be had later."""
    stamp = venv / "ready"
    return (
        (venv / "jars").is_dir()
        and stamp.is_file()
        and stamp.read_text(encoding="utf-8").split("\n")[:2] == [java, digest()]
    )


def set_up(venv: Path, java: str, archive: Path | None = None) -> None:
    """Bring the environment up to date, alone; from a bundle without asking anybody else, if one is given."""
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
        check_python()
        check_venv(venv)
        fill(venv, java, archive)


def fill(venv: Path, java: str, archive: Path | None) -> None:
    """Do the steps that are left; the stamp is the last thing written."""
    again = (venv / "steps").is_dir()
    say(f"setting up {venv}" + (", what is left of it" if again else " (once: some 600 MB of packages)"))
    venv.mkdir(exist_ok=True)
    with bundle.unpacked(archive, venv) as unpacked:
        if unpacked is not None:
            os.environ[WHEELS], os.environ[delta_jars.JARS] = str(unpacked / "wheels"), str(unpacked / "jars")
        Steps(venv / "steps").run(steps_of(venv, java))
    draft = venv / "ready.draft"
    draft.write_text(f"{java}\n{digest()}\n", encoding="utf-8")
    draft.replace(venv / "ready")


def install_extra(venv: Path, extra: str) -> None:
    """Install an extra, unless that has been done since its description changed; raise SetupError if there is none."""
    lock = REQUIREMENTS / f"{extra}.txt"
    if not lock.is_file():
        raise SetupError(f"there is no extra {extra}", f"conf/{REQUIREMENTS.name} has them")
    key = hashlib.sha256("".join(locked(one) for one in sorted(REQUIREMENTS.glob("*.txt"))).encode()).hexdigest()
    step = Step(f"extra {extra}", lambda progress: install_with_numba(venv, (), progress, "-r", str(lock)), key)
    Steps(venv / "steps").run([step])


def main() -> NoReturn:
    """Set up what ``--venv`` names and become the job whose command line follows ``--``."""
    parser = argparse.ArgumentParser(
        prog="spark-submit.sh", description="makes the environment; run by spark-submit.sh", allow_abbrev=False
    )
    parser.add_argument("--venv", type=lambda text: Path(text).absolute(), default=Path(sys.prefix))
    parser.add_argument("--java", default="java")
    parser.add_argument("--from", type=Path, dest="archive", metavar="FILE", help="a file that --bundle wrote")
    parser.add_argument("--with", choices=("s3",), dest="connector", help="what Spark reads tables on S3 with, too")
    parser.add_argument("--bundle", type=Path, metavar="FILE", help="write all that a set-up fetches into FILE")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="write what executors need into FILE, a .tar.gz")
    parser.add_argument("--extra", help="only install an extra of pyproject.toml; inside the environment")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, job = sys.argv[1:at], sys.argv[at + 1 :]
    try:
        arguments = parser.parse_args(own)
    except SystemExit as ended:
        sys.exit(EX_USAGE if ended.code else 0)
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.pack:
            packing.pack(arguments.pack.absolute())
        elif arguments.bundle:
            numba = any(arguments.venv.glob("lib/python3.*/site-packages/numba-*.dist-info"))
            bundle.write(arguments.bundle.absolute(), arguments.venv, locked(SETUP, () if numba else NUMBA))
        elif arguments.extra:
            install_extra(arguments.venv, arguments.extra)
        else:
            set_up(arguments.venv, arguments.java, arguments.archive)
            if arguments.connector:
                say(s3_jars.fetch(arguments.venv, StepProgress(arguments.venv / "setup-s3.log")))
    except KeyboardInterrupt:
        say("interrupted; the next start continues the set-up")
        sys.exit(130)
    except SetupError as error:
        say(f"error: {error}" + (f"\n  {error.advice}" if error.advice else ""))
        sys.exit(EX_UNAVAILABLE)
    except WriteFailed as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        written = arguments.pack or arguments.bundle
        say(f"error: {written} cannot be written: {error}" if written else f"error: the set-up failed: {error}")
        sys.exit(EX_IOERR if written else EX_UNAVAILABLE)
    if not job:
        sys.exit(0)
    python = str(arguments.venv / "bin" / "python")
    os.execv(python, [python, str(ROOT / "jobs" / "__main__.py"), *job])


if __name__ == "__main__":
    main()
