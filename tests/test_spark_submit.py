"""The start script: what it finds, what it refuses, what it leaves to the environment, and that nothing outlives it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.spark import environment

ROOT = Path(__file__).resolve().parent.parent
JAVA = shutil.which("java")


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def java_that_says(path: Path, version: str) -> Path:
    return executable(path, f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a copy of what a start needs, under a path with blanks."""
    root = tmp_path / "a check out"
    root.mkdir()
    shutil.copy(ROOT / "spark-submit.sh", root)
    shutil.copy(ROOT / "pyproject.toml", root)
    for folder in ("jobs", "conf"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "demo_store"))
    (root / "storeformat").mkdir()
    for name in ("__init__.py", "errors.py", "javaproperties.py"):
        shutil.copy(ROOT / "storeformat" / name, root / "storeformat")
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

    def test_no_java_is_one_line_and_69(self, start: Start, checkout: Path) -> None:
        self.refuses(start, checkout, "rebuild", "--store", "S", "--output", "D")
        self.refuses(start, checkout, "--pack", "python.tar.gz")

    def refuses(self, start: Start, checkout: Path, *arguments: str) -> None:
        done = start(*arguments, JAVA_HOME="/nowhere")
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr == "error: Java 17 or later is needed; install it, or set JAVA_HOME\n"
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402", "nonsense"])
    def test_an_old_java_is_refused(self, start: Start, checkout: Path, tmp_path: Path, version: str) -> None:
        old = java_that_says(tmp_path / "old" / "bin" / "java", version)
        done = start("rebuild", "--store", "S", "--output", "D", JAVA_HOME=str(old.parent.parent))
        assert done.returncode == 69
        assert done.stderr.startswith("error: Java 17 or later is needed; ")
        assert not (checkout / ".venv").exists()

    def test_no_python_is_one_line_and_69(self, start: Start, tmp_path: Path) -> None:
        tools = tmp_path / "tools"
        tools.mkdir()
        for tool in ("sh", "dirname", "readlink"):
            (tools / tool).symlink_to(shutil.which(tool) or "")
        done = start("rebuild", "--store", "S", "--output", "D", PATH=str(tools))
        assert done.returncode == 69
        assert done.stderr.startswith("error: Python 3.10 or later is needed")


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

    def test_a_start_takes_no_time(self, start: Start, ready: Path) -> None:
        start("demo")
        begun = time.monotonic()
        for _ in range(10):
            start("demo")
        assert (time.monotonic() - begun) / 10 < 0.1

    @pytest.mark.parametrize("change", ["pyproject", "java", "python"])
    def test_what_it_was_made_from_is_looked_at(
        self, start: Start, ready: Path, checkout: Path, tmp_path: Path, change: str
    ) -> None:
        (checkout / "jobs" / "environment.py").write_text("import sys; print('set up', sys.argv[1:])\n")
        os.utime(checkout / "jobs" / "environment.py", (0, 0))
        assert "set up" not in start("restore", "--store", "S").stdout
        if change == "pyproject":
            os.utime(checkout / "pyproject.toml", (time.time() + 9, time.time() + 9))
        elif change == "java":
            (ready / "ready").write_text("/another/java\ndigest\n")
        else:
            (ready / "bin" / "python").unlink()
        # A copy of the command line is checked before; every job whose module is there will do.
        done = start("rebuild", "--store", "S", "--output", "D")
        assert done.stdout.startswith("set up ['--venv'"), done.stderr
        assert done.stdout.endswith("'--', 'rebuild', '--store', 'S', '--output', 'D']\n")


class TestEnvironment:
    @pytest.mark.parametrize(
        ("said", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25), ("x", 0)]
    )
    def test_java_versions(self, tmp_path: Path, said: str, version: int) -> None:
        assert environment.java_version(str(java_that_says(tmp_path / "java", said))) == version

    def test_no_java_has_no_version(self, tmp_path: Path) -> None:
        assert environment.java_version(str(tmp_path / "absent")) == 0

    def test_dependencies_are_those_of_the_project(self) -> None:
        needed = environment.requirements()
        assert any(name.startswith("pyspark==") for name in needed)
        assert [name[:5] for name in environment.requirements("fast") if name not in needed] == ["numba"]

    def test_extras_bring_the_extras_that_they_name(self) -> None:
        names = environment.requirements("test")
        assert not [name for name in names if name.startswith("rocketmq")]
        assert {"pytest", "ipykernel", "matplotlib"} <= {name.split(">")[0].split("=")[0] for name in names}

    def test_only_what_is_installed_makes_an_environment_old(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = tmp_path / "pyproject.toml"
        monkeypatch.setattr(environment, "DESCRIBED_BY", (project,))
        digests = []
        for text in (
            "[project]\na = 1\n[tool.x]\nb = 1\n",
            "[project]\na = 1\n[tool.x]\nb = 2\n",
            "[project]\na = 2\n",
        ):
            project.write_text(text)
            digests.append(environment.digest())
        assert digests[0] == digests[1] != digests[2]

    def test_a_directory_that_is_something_else_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "mine").write_text("dear to me")
        with pytest.raises(SystemExit) as ended:
            environment.create_venv(tmp_path)
        assert ended.value.code == 69
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]

    def test_an_environment_without_its_stamp_is_filled_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        java = str(java_that_says(tmp_path / "java", "17"))
        venv = tmp_path / "venv"
        calls: list[list[str]] = []

        def interrupted(command: list[str]) -> int:
            calls.append(command)
            return 130

        def completed(command: list[str]) -> int:
            calls.append(command)
            (venv / "ready").write_text(f"{java}\n{environment.digest()}\n")
            return 0

        monkeypatch.setattr(environment, "create_venv", lambda venv: venv.mkdir(exist_ok=True))
        monkeypatch.setattr(environment, "check_java", lambda java: None)
        monkeypatch.setattr(environment, "code_of", interrupted)
        with pytest.raises(SystemExit) as ended:
            environment.set_up(venv, java)
        assert ended.value.code == 130
        assert not environment.is_ready(venv, java)
        monkeypatch.setattr(environment, "code_of", completed)
        environment.set_up(venv, java)
        assert environment.is_ready(venv, java)
        environment.set_up(venv, java)
        assert len(calls) == 2, "a third start had nothing to do"

    def test_what_it_started_ends_with_it(self, tmp_path: Path) -> None:
        program = (
            "import signal, sys\nfrom jobs.spark import environment as e\n"
            "signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))\n"
            "e.code_of(['sh', '-c', 'echo begun; exec sleep 60'])\n"
        )
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            time.sleep(0.5)  # it may speak before the one that started it holds it
            process.terminate()
            assert process.wait(timeout=150) == 143
        assert processes_of(process.pid) == []

    def test_a_second_start_waits_for_the_first(self, tmp_path: Path) -> None:
        venv = tmp_path / "venv"
        program = (
            "import sys, time\nfrom pathlib import Path\nfrom jobs.spark import environment as e\n"
            "venv = Path(sys.argv[1])\n"
            "e.check_java = lambda java: None\n"
            "def create(venv):\n"
            "    venv.mkdir()  # fails for the second of two at once\n"
            "    time.sleep(0.5)\n"
            "    (venv / 'ready').write_text('java\\n' + e.digest() + '\\n')\n"
            "e.create_venv = create\n"
            "e.code_of = lambda command: 0\n"
            "e.set_up(venv, 'java')\n"
        )
        started = [
            subprocess.Popen([sys.executable, "-c", program, str(venv)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        said = [process.communicate(timeout=150)[1] for process in started]
        assert [process.returncode for process in started] == [0, 0, 0], said
        assert sum("setting up" in text for text in said) == 1


SLOW_JOB = """
import sys, time
sys.path.insert(0, {root!r})
from jobs import command_line, config, job_arguments
from jobs.reporting import Report
from jobs.spark.session import spark_context

class slow_job:
    @staticmethod
    def run(options, reporter):
        reporter.note("begun")
        with spark_context("slow") as context:
            reporter.note("started")
            def work(items):
                import time
                time.sleep(60)
                return items
            context.parallelize(range(4), 4).mapPartitions(work).collect()
        return Report("slow")

sys.modules["slow_job"] = slow_job
job = command_line.Job("slow_job", "sleeps", config.DemoOptions, job_arguments.add_demo)
sys.exit(command_line.main(["demo"], {{"demo": job}}))
"""


def processes_of(session: int) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "sid,stat,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return [row[2] for row in rows if row[0] == str(session) and not row[1].startswith("Z")]


@pytest.mark.spark
@pytest.mark.skipif(JAVA is None, reason="no java")
@pytest.mark.parametrize(
    ("number", "whole_group", "wait_for", "then"),
    [
        (signal.SIGINT, True, "begun", 0.5),  # Ctrl-C while the JVM starts
        (signal.SIGINT, True, "started", 3.0),  # Ctrl-C while tasks run
        (signal.SIGTERM, False, "started", 3.0),  # a scheduler ends it
        (signal.SIGKILL, False, "started", 3.0),  # even then nothing stays
    ],
)
def test_a_signal_leaves_no_process_and_no_file(
    tmp_path: Path, number: signal.Signals, whole_group: bool, wait_for: str, then: float
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_JOB.format(root=str(ROOT))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={tmp_path}"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip() == wait_for:
            break
    time.sleep(then)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number), complaint
    if number != signal.SIGKILL:
        assert complaint.replace("started\n", "") == "interrupted; nothing was left behind\n"
        assert said == ""
    deadline = time.monotonic() + 100
    while processes_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(process.pid) == []
    assert number == signal.SIGKILL or list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(JAVA is None, reason="no java")
def test_a_fresh_checkout_sets_itself_up(tmp_path: Path) -> None:
    """The whole first start, from the package index and the Maven repository: minutes, and the network."""
    root = tmp_path / "fresh"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
    home = tmp_path / "home"
    home.mkdir()
    settings = {**os.environ, "HOME": str(home), "ROCKETMQ_STORE_SPARK_PYTHON": sys.executable}
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
