"""The start script: what it finds, what it refuses, what it leaves to the environment, and that nothing outlives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_java import executable, java_that_says

ROOT = Path(__file__).resolve().parent.parent
JAVA = shutil.which("java")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a copy of what a start needs, under a path with blanks."""
    root = tmp_path / "a check out"
    root.mkdir()
    shutil.copy(ROOT / "spark-submit.sh", root)
    shutil.copy(ROOT / "pyproject.toml", root)
    for folder in ("jobs", "conf", "storeformat", "udfs"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "demo_store"))
    return root


Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(checkout: Path, tmp_path: Path) -> Start:
    """Returns a function that starts the script as a new user would: empty HOME, nothing set up, a small PATH."""
    home = tmp_path / "home"
    home.mkdir()
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)

    def run(
        *arguments: str, program: Path | str = checkout / "spark-submit.sh", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        path = f"{python.parent}:/usr/bin:/bin"
        java_home = {"JAVA_HOME": str(java_that_says(tmp_path / "java" / "bin" / "java", "17.0.15").parent.parent)}
        settings = {"PATH": path, "HOME": str(home), **java_home, **settings}
        return subprocess.run(
            [program, *arguments], env=settings, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def ready(checkout: Path, tmp_path: Path) -> Path:
    """Returns the environment of a checkout that is set up; its Python tells how it was called."""
    venv = checkout / ".venv"
    executable(venv / "bin" / "python", '#!/bin/sh\nprintf "%s|" "$PYTHONSAFEPATH" "$@"\n')
    (venv / "ready").write_text(f"{tmp_path}/java/bin/java\ndigest\n")
    return venv


class TestWithoutSetUp:
    def test_help_needs_nothing(self, start: Start, checkout: Path) -> None:
        for arguments in (["--help"], [], ["rebuild", "--help"]):
            done = start(*arguments, JAVA_HOME="/nowhere")
            assert done.returncode == 0
            assert "spark-submit.sh" in done.stdout
        assert not (checkout / ".venv").exists()

    def test_a_wrong_line_is_told_before_anything_is_installed(self, start: Start, checkout: Path) -> None:
        done = start("rebuild", "--store", JAVA_HOME="/nowhere")
        assert done.returncode == 64
        assert done.stderr.startswith("error: argument --store")
        assert not (checkout / ".venv").exists()

    def test_no_java_is_said_before_anything_is_installed(self, start: Start, checkout: Path) -> None:
        done = start("rebuild", "--store", "S", "--output", "D", JAVA_HOME="/nowhere")
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr == (
            "error: Spark needs Java 17 or later: JAVA_HOME=/nowhere has no bin/java\n  install it, or set JAVA_HOME\n"
        )
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402", "nonsense"])
    def test_an_old_java_is_refused(self, start: Start, checkout: Path, tmp_path: Path, version: str) -> None:
        old = java_that_says(tmp_path / "old" / "bin" / "java", version)
        done = start("rebuild", "--store", "S", "--output", "D", JAVA_HOME=str(old.parent.parent))
        assert done.returncode == 69
        assert done.stderr.startswith(f"error: Spark needs Java 17 or later: {old} is ")
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("line", ["preflight --store S", "publish --store S --from D"])
    def test_what_needs_no_jvm_needs_no_java(self, start: Start, checkout: Path, line: str) -> None:
        setup = checkout / "jobs" / "setup" / "environment.py"
        setup.write_text("import sys; print('set up', sys.argv[1:])\n")
        done = start(*line.split(), JAVA_HOME="/nowhere")
        assert done.stdout.startswith("set up ['--venv'"), done.stderr

    def test_no_python_is_one_line_and_69(self, start: Start, tmp_path: Path) -> None:
        tools = tmp_path / "tools"
        tools.mkdir()
        for tool in ("sh", "dirname", "readlink"):
            (tools / tool).symlink_to(shutil.which(tool) or "")
        done = start("rebuild", "--store", "S", "--output", "D", PATH=str(tools))
        assert done.returncode == 69
        assert done.stderr.startswith("error: Python 3.10 to 3.14 is needed")

    def test_a_named_python_that_does_not_fit_is_not_replaced(
        self, start: Start, checkout: Path, tmp_path: Path
    ) -> None:
        old = executable(tmp_path / "old one" / "python", "#!/bin/sh\nexit 1\n")
        done = start("demo", ROCKETMQ_STORE_SPARK_PYTHON=str(old))
        assert done.returncode == 69
        assert done.stderr == f"error: Python 3.10 to 3.14 is needed; ROCKETMQ_STORE_SPARK_PYTHON names {old}\n"
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("arguments", [["--from", "x"], ["--form", "x"], ["--from"], ["x"]])
    def test_what_setup_takes(self, start: Start, checkout: Path, arguments: list[str]) -> None:
        done = start("--setup", *arguments)
        if arguments == ["--from", "x"]:
            assert done.returncode == 69
            assert "No such file" in done.stderr
        else:
            assert (done.returncode, done.stderr) == (64, "error: --setup takes nothing, --from FILE, or --with s3\n")


class TestWhenReady:
    def test_the_job_gets_its_arguments_as_they_are(self, start: Start, ready: Path, checkout: Path) -> None:
        done = start("--conf", "a=b c", "rebuild", "--store", "it's *", "")
        assert done.stdout == f"1|{checkout}/jobs/__main__.py|--conf|a=b c|rebuild|--store|it's *||"
        assert done.stderr == ""

    def test_through_a_link_and_from_elsewhere(self, start: Start, ready: Path, checkout: Path, tmp_path: Path) -> None:
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "one").symlink_to(checkout / "spark-submit.sh")
        (tmp_path / "two").symlink_to("links/one")
        assert start("demo", program="./two").stdout == f"1|{checkout}/jobs/__main__.py|demo|"

    def test_nobody_looks_at_java(self, start: Start, ready: Path, checkout: Path) -> None:
        """Half of the jobs need none; a broker's ExecStartPre must not set anything up."""
        done = start("preflight", "--store", "S", JAVA_HOME="/another")
        assert (done.stdout, done.stderr) == (f"1|{checkout}/jobs/__main__.py|preflight|--store|S|", "")

    def test_a_start_takes_no_time(self, start: Start, ready: Path) -> None:
        start("demo")
        begun = time.monotonic()
        for _ in range(10):
            start("demo")
        assert (time.monotonic() - begun) / 10 < 0.1

    @pytest.mark.parametrize("change", ["pyproject", "python"])
    def test_what_it_was_made_from_is_looked_at(
        self, start: Start, ready: Path, checkout: Path, tmp_path: Path, change: str
    ) -> None:
        (checkout / "jobs" / "setup" / "environment.py").write_text("import sys; print('set up', sys.argv[1:])\n")
        os.utime(checkout / "jobs" / "setup" / "environment.py", (0, 0))
        assert "set up" not in start("restore", "--store", "S").stdout
        if change == "pyproject":
            os.utime(checkout / "pyproject.toml", (time.time() + 9, time.time() + 9))
        else:
            (ready / "bin" / "python").unlink()
        # A copy of the command line is checked before; every job whose module is there will do.
        done = start("rebuild", "--store", "S", "--output", "D")
        assert done.stdout.startswith("set up ['--venv'"), done.stderr
        assert done.stdout.endswith("'--', 'rebuild', '--store', 'S', '--output', 'D']\n")


@pytest.mark.slow
@pytest.mark.skipif(JAVA is None, reason="no java")
def test_a_fresh_checkout_sets_itself_up(tmp_path: Path) -> None:
    """The whole first start, from the package index and the Maven repository: minutes, and the network."""
    root = tmp_path / "fresh"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
    home = tmp_path / "home"
    home.mkdir()
    settings = {
        **os.environ, "HOME": str(home), "ROCKETMQ_STORE_SPARK_PYTHON": sys.executable, "ROCKETMQ_STORE_SPARK_VENV": "",
    }  # fmt: skip
    line = [
        str(root / "spark-submit.sh"),
        "rebuild",
        "--store",
        str(tmp_path / "absent"),
        "--output",
        str(tmp_path / "o"),
    ]
    first = subprocess.run(line, env=settings, capture_output=True, text=True, check=False)
    assert first.returncode == 66, first.stderr
    assert (root / ".venv" / "ready").is_file()
    assert (root / ".venv" / "spark.jsa").is_file()
    if shutil.which("mvn"):
        assert list((root / ".venv" / "jars").glob("delta-spark*.jar"))
    second = subprocess.run(line, env=settings, capture_output=True, text=True, check=False)
    assert (second.returncode, "setting up" in second.stderr) == (66, False)


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
    bundle, venv, home = tmp_path / "bundle.tar", tmp_path / "venv", tmp_path / "home"
    home.mkdir()
    script = str(ROOT / "spark-submit.sh")
    subprocess.run([script, "--bundle", str(bundle)], check=True)
    settings = {
        **os.environ,
        "HOME": str(home),
        "PIP_RETRIES": "0",
        "ROCKETMQ_STORE_SPARK_VENV": str(venv),
        "ROCKETMQ_STORE_SPARK_PYTHON": sys.executable,
    }
    there = subprocess.run(
        without_network(script, "--setup"), env=settings, capture_output=True, text=True, check=False
    )
    assert there.returncode == 69, "there is no network indeed"
    made = subprocess.run(
        without_network(script, "--setup", "--from", str(bundle)),
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    demo = subprocess.run(without_network(script, "demo"), env=settings, capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stderr
    assert "identical with the broker's own" in demo.stdout
