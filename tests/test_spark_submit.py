"""spark-submit.sh: set-up, start, bundle and pack."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def java_that_says(path: Path, version: str) -> Path:
    return executable(path, f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")


ROOT = Path(__file__).resolve().parent.parent
JAVA = shutil.which("java")
JAR = b"a jar of Delta's"

PYTHON = """\
#!/bin/sh
# Its venvs have this program as Python; pip and the compilers only write down their arguments, the rest is real.
case "$*" in
"-I -m venv --clear "*)
    rm -rf "$5"/*; mkdir -p "$5/bin" "$5/lib/python3.11/site-packages"; touch "$5/pyvenv.cfg"
    cp "$0" "$5/bin/python"; chmod 755 "$5/bin/python"
    echo "venv" >>"{told}" ;;
"-I -m pip "*) echo "${{PIP_USER:-}}${{PIP_TARGET:-}}" "$@" >>"{told}"; {pip} ;;
*jobs/__main__.py*) [ -n "${{ROCKETMQ_STORE_SPARK_CHECK:-}}" ] || printf '%s|' "$PYTHONSAFEPATH" "$@" ;;
"-m "*) echo "$@" >>"{told}" ;;
"-c "*) touch "${{ROCKETMQ_STORE_SPARK_VENV:-$PWD/a check out/.venv}}/tmp/spark.jsa" ;;
*) exec "{python}" "$@" ;;
esac
"""

Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose path has blanks and whose ``conf/`` names one jar."""
    root = tmp_path / "a check out"
    root.mkdir()
    for name in ("spark-submit.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    for folder in ("jobs", "storeformat", "udfs"):
        (root / folder).symlink_to(ROOT / folder)
    shutil.copytree(ROOT / "conf", root / "conf")
    (root / "conf" / "delta-jars.sha256").write_text(
        f"# sums\n{hashlib.sha256(JAR).hexdigest()}  io/delta/one/1/one-1.jar\n"
    )
    (tmp_path / "maven" / "io" / "delta" / "one" / "1").mkdir(parents=True)
    (tmp_path / "maven" / "io" / "delta" / "one" / "1" / "one-1.jar").write_bytes(JAR)
    return root


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """The file with the arguments of pip and the compilers."""
    return tmp_path / "told"


@pytest.fixture
def start(checkout: Path, tmp_path: Path, told: Path) -> Start:
    """Start the script as a new user: empty HOME, small PATH, and ``pip`` (shell) in place of pip."""
    (tmp_path / "home").mkdir()
    java = java_that_says(tmp_path / "java" / "bin" / "java", "17.0.15")

    def run(
        *arguments: str, program: Path | str = checkout / "spark-submit.sh", pip: str = ":", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        for python in (tmp_path / "bin" / "python3", checkout / ".venv" / "bin" / "python"):
            if python.exists() or python.name == "python3":
                executable(python, PYTHON.format(told=told, pip=pip, python=sys.executable))
        given = {
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "HOME": str(tmp_path / "home"),
            "JAVA_HOME": str(java.parent.parent),
            "ROCKETMQ_STORE_SPARK_MAVEN": (tmp_path / "maven").as_uri(),
        }
        given |= settings
        return subprocess.run(
            [program, *arguments], env=given, cwd=tmp_path, umask=0o077, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def ready(checkout: Path, start: Start, told: Path) -> Path:
    assert start("--setup").returncode == 0
    told.unlink()
    return checkout / ".venv"


def lines(told: Path) -> list[str]:
    return told.read_text().splitlines() if told.exists() else []


class TestWithoutSetUp:
    def test_help_needs_nothing(self, start: Start, checkout: Path) -> None:
        for arguments in (["--help"], [], ["rebuild", "--help"]):
            done = start(*arguments, JAVA_HOME="/nowhere", ROCKETMQ_STORE_SPARK_PYTHON=sys.executable)
            assert done.returncode == 0
            assert "spark-submit.sh" in done.stdout
        assert not (checkout / ".venv").exists()

    def test_no_java_comes_first(self, start: Start, checkout: Path) -> None:
        given = {"JAVA_HOME": "/nowhere", "ROCKETMQ_STORE_SPARK_PYTHON": sys.executable}
        done = start("rebuild", "--store", "S", "--output", "D", **given)
        assert done.returncode == 69
        assert done.stderr.startswith("error: Spark needs Java 17 or later: ")
        assert start("rebuild", "--store", **given).returncode == 64
        assert not (checkout / ".venv").exists()

    def test_no_python_is_one_line_and_69(self, start: Start, tmp_path: Path) -> None:
        (tmp_path / "tools").mkdir()
        for tool in ("sh", "dirname", "readlink", "cat", "sha256sum"):
            (tmp_path / "tools" / tool).symlink_to(shutil.which(tool) or "")
        done = start("demo", PATH=str(tmp_path / "tools"))
        needed = "error: a 64-bit Python 3.10 to 3.14 is needed: install or name one in ROCKETMQ_STORE_SPARK_PYTHON"
        assert (done.returncode, done.stderr) == (69, f"{needed}\n")
        done = start("demo", ROCKETMQ_STORE_SPARK_PYTHON="/nowhere")
        assert (done.returncode, done.stderr) == (69, f"{needed}, which is /nowhere\n")

    @pytest.mark.parametrize("line", ["--setup --from", "--setup x", "--setup --with hdsf", "--pack", "--bundle a b"])
    def test_what_is_no_command_line(self, start: Start, checkout: Path, line: str) -> None:
        assert start(*line.split()).returncode == 64
        assert not (checkout / ".venv").exists()


class TestSetUp:
    def test_the_first_start_sets_up_and_goes_on(self, start: Start, checkout: Path, told: Path) -> None:
        done = start("demo", "a b", PIP_USER="1", PIP_TARGET="/elsewhere")
        assert done.stdout == f"1|{checkout}/jobs/__main__.py|demo|a b|"
        assert done.stderr.splitlines() == [
            f"setting up {checkout}/.venv (once: some 600 MB of packages, two minutes)",
            "  packages", "  Delta's jars", "  compiled kernels, class archive",
        ]  # fmt: skip
        made, *installed, bytecode = lines(told)
        assert made == "venv"
        assert [line.split("requirements/")[1].split(".txt")[0] for line in installed] == ["build", "setup", "fast"]
        for line in installed:
            assert line.startswith("0 -I -m pip install "), "no other place to install to"
            assert {"--require-hashes", "--no-deps", "--no-build-isolation"} <= set(line.split())
        assert bytecode[:16] == "-m compileall -q"
        venv = checkout / ".venv"
        assert (venv / "jars" / "one-1.jar").read_bytes() == JAR
        assert (venv / "spark.jsa").is_file()
        assert not (venv / "tmp").exists()
        told.unlink()
        assert start("demo").stderr == ""
        assert lines(told) == []

    def test_a_set_up_begins_anew(self, start: Start, ready: Path, checkout: Path, told: Path) -> None:
        (ready / "ready").unlink()
        (ready / "tmp").mkdir()
        assert "setting up" in start("demo").stderr, "it was interrupted"
        with (checkout / "conf/requirements/setup.txt").open("a") as file:
            file.write("more==1\n")
        assert "setting up" in start("demo").stderr, "another package is needed"
        assert lines(told).count("venv") == 2

    def test_packages_that_cannot_be_had(self, start: Start, checkout: Path) -> None:
        done = start("--setup", pip="echo ERROR: No matching distribution found for x==1; echo notice; exit 1")
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr.splitlines()[-1] == (
            "error: pip install: No matching distribution found for x==1"
            f" ({checkout}/.venv.log; without a network: --setup --from FILE)"
        )
        assert not (checkout / ".venv" / "ready").exists()

    def test_numba_may_be_missing(self, start: Start, ready: Path) -> None:
        (ready / "ready").unlink()
        done = start("--setup", pip='case "$*" in *fast.txt*) exit 1;; esac')
        assert (done.returncode, "no numba" in done.stderr) == (0, True)

    @pytest.mark.parametrize("way", ["ROCKETMQ_STORE_SPARK_MAVEN", "ROCKETMQ_STORE_SPARK_JARS"])
    @pytest.mark.parametrize("what", ["there", "changed", "absent"])
    def test_jars(self, start: Start, checkout: Path, tmp_path: Path, way: str, what: str) -> None:
        jar = tmp_path / "maven/io/delta/one/1/one-1.jar"
        jar.unlink() if what == "absent" else jar.write_bytes(JAR + b"!" if what == "changed" else JAR)
        done = start("--setup", **{way: str(jar.parent) if way.endswith("JARS") else (tmp_path / "maven").as_uri()})
        assert done.returncode == (0 if what == "there" else 69)
        assert (checkout / ".venv" / "ready").exists() == (what == "there")
        said = {"there": "", "changed": "a jar of Delta's is not the published one", "absent": "Delta's jars: "}
        assert said[what] in done.stderr

    def test_a_directory_that_is_something_else_is_left_alone(self, start: Start, checkout: Path) -> None:
        (checkout / ".venv").mkdir()
        (checkout / ".venv" / "mine").write_text("dear to me")
        assert start("demo").stderr == f"error: {checkout}/.venv exists and is not a virtual environment\n"
        assert [path.name for path in (checkout / ".venv").iterdir()] == ["mine"]

    def test_an_extra(self, start: Start, ready: Path, told: Path) -> None:
        assert start("--setup", "--with", "hdfs,rocksdb").returncode == 0
        assert ["hdfs.txt" in lines(told)[0], "rocksdb.txt" in lines(told)[1], len(lines(told))] == [True, True, 2]


class TestWhenReady:
    def test_the_job_gets_its_arguments_as_they_are(self, start: Start, ready: Path, checkout: Path) -> None:
        done = start("--conf", "a=b c", "rebuild", "--store", "it's *", "", JAVA_HOME="/another")
        assert done.stdout == f"1|{checkout}/jobs/__main__.py|--conf|a=b c|rebuild|--store|it's *||"
        assert done.stderr == ""

    def test_through_a_link_and_from_elsewhere(self, start: Start, ready: Path, checkout: Path, tmp_path: Path) -> None:
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "one").symlink_to(checkout / "spark-submit.sh")
        (tmp_path / "two").symlink_to("links/one")
        assert start("demo", program="./two").stdout == f"1|{checkout}/jobs/__main__.py|demo|"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root may be others")
def test_a_set_up_serves_all_who_may_read_it(ready: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        place = shutil.copytree(ready.parent, Path(directory, "checkout"), symlinks=True)
        line = f"setpriv --reuid 54321 --regid 54321 --clear-groups {place}/spark-submit.sh preflight --store S"
        given = {name: text for name, text in os.environ.items() if not name.startswith("ROCKETMQ_STORE_SPARK_")}
        done = subprocess.run(line.split(), env=given, cwd=place, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (f"1|{place}/jobs/__main__.py|preflight|--store|S|", "")


class TestFilesForElsewhere:
    @pytest.mark.parametrize("file", ["file/x", "."])
    def test_what_cannot_be_written(self, start: Start, ready: Path, tmp_path: Path, file: str) -> None:
        (tmp_path / "file").touch()
        before = sorted(tmp_path.iterdir())
        done = start("--pack", file)
        assert (done.returncode, done.stderr) == (74, f"error: {file} cannot be written\n")
        assert sorted(tmp_path.iterdir()) == before

    def test_a_bundle_is_set_up_from(self, start: Start, ready: Path, told: Path) -> None:
        save = 'while [ "$1" != --dest ]; do shift; done; mkdir -p "$2" && touch "$2/w.whl"'
        done = start("--bundle", "b.tar", pip=save)
        assert done.returncode == 0, done.stderr
        assert [" download " in line for line in lines(told)] == [True] * 3
        shutil.rmtree(ready)
        done = start("--setup", "--from", "b.tar", pip=f'ls "{ready}/tmp/bundle/wheels" >>"{told}"')
        assert done.returncode == 0, done.stderr
        assert "w.whl" in lines(told)
        assert f"--no-index --find-links {ready}/tmp/bundle/wheels" in lines(told)[-3]
        assert (ready / "jars" / "one-1.jar").read_bytes() == JAR

    def test_what_is_no_bundle(self, start: Start, checkout: Path, tmp_path: Path) -> None:
        (tmp_path / "b.tar").write_text("hello")
        done = start("--setup", "--from", "b.tar")
        assert (done.returncode, "error: b.tar cannot be unpacked: " in done.stderr) == (69, True)
        assert not (checkout / ".venv" / "ready").exists()

    def test_a_pack_runs_with_the_python_of_its_machine(self, start: Start, ready: Path, tmp_path: Path) -> None:
        version = f"python3.{sys.version_info[1]}"
        site = (ready / "lib" / "python3.11").rename(ready / "lib" / version) / "site-packages"
        for name in ("numpy.py", "pyspark.py"):
            (site / name).touch()
        done = start("--pack", "python.tar.gz")
        assert done.returncode == 0, done.stderr
        (tmp_path / "executor").mkdir()
        subprocess.run(["tar", "-xzf", "python.tar.gz", "-C", "executor"], cwd=tmp_path, check=True)
        unpacked = tmp_path / "executor" / "lib" / version / "site-packages"
        assert [path.name for path in unpacked.iterdir()] == ["numpy.py"]
        environment = {"PATH": f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin", "PYTHONPATH": "/program.zip"}
        line = ["executor/bin/python", "-c", "import sys; print(sys.path)"]
        said = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert f"'{unpacked}', '/program.zip'" in said


def without_network(*command: str) -> list[str]:
    """The command in a network namespace of its own, with loopback and nothing else."""
    return ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]


@pytest.mark.slow
@pytest.mark.skipif(JAVA is None, reason="no java")
@pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.run(without_network("true"), capture_output=True, check=False).returncode != 0,
    reason="no network namespaces here",
)
def test_a_bundle_sets_up_without_a_network(tmp_path: Path) -> None:
    script, bundle = str(ROOT / "spark-submit.sh"), str(tmp_path / "bundle.tar")
    subprocess.run(
        [script, "--bundle", bundle], env={**os.environ, "ROCKETMQ_STORE_SPARK_VENV": sys.prefix}, check=True
    )
    (tmp_path / "home").mkdir()
    given = {"HOME": f"{tmp_path}/home", "PIP_RETRIES": "0", "ROCKETMQ_STORE_SPARK_VENV": f"{tmp_path}/venv"}
    given = {**os.environ, **given, "ROCKETMQ_STORE_SPARK_PYTHON": sys.executable}
    for words, code in ((["--setup"], 69), (["--setup", "--from", bundle], 0), (["demo"], 0)):
        done = subprocess.run(without_network(script, *words), env=given, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    assert "identical with the broker's own" in done.stdout


def test_what_the_set_up_imports_is_there() -> None:
    """A class archive that cannot be made is only a line: Spark would start 1.5 s later ever after."""
    imports = [line for line in (ROOT / "spark-submit.sh").read_text().splitlines() if line.startswith("from jobs.")]
    assert imports
    for line in imports:
        exec(line, {})
