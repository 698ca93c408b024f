"""The first start: what it looks at, and that it is done once."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_java import java_that_says
from support.patching import stand_in
from support.processes import processes_of

from jobs.setup import environment
from jobs.setup.setup_steps import SetupError, StepProgress

ROOT = Path(__file__).resolve().parents[3]
JAVA = shutil.which("java")


class TestEnvironment:
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
        with pytest.raises(SetupError, match="is not a virtual environment"):
            environment.check_venv(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]

    def test_a_set_up_that_was_cut_short_early_goes_on(self, tmp_path: Path) -> None:
        (tmp_path / "steps").mkdir()
        (tmp_path / "jars.x1").mkdir()
        (tmp_path / "setup-environment.log").touch()
        environment.check_venv(tmp_path)

    def test_without_a_wheel_of_numba_the_rest_is_installed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[list[str]] = []

        def install(venv: Path, wanted: str, progress: object) -> str:
            asked.append(re.findall(r"^[\w-]+(?===)", wanted, re.MULTILINE))
            if "numba" in asked[-1]:
                raise SetupError("no wheel")
            return "9 packages"

        monkeypatch.setattr(environment, "pip_install", install)
        told = environment.install_with_numba(tmp_path, environment.SPARK, StepProgress(tmp_path / "log"))
        assert told.startswith("9 packages; numba has no wheel")
        assert asked[1] == [name for name in asked[0] if name not in environment.NUMBA]
        assert {"numpy", "pyarrow", "pandas"} <= set(asked[1])
        assert not {"pyspark", "delta-spark"} & set(asked[0])

    def test_spark_comes_after_all_that_it_needs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        monkeypatch.setattr(environment, "pip_install", lambda venv, wanted, *more: asked.append(wanted))
        environment.install_spark(tmp_path, StepProgress(tmp_path / "log"))
        assert re.findall(r"^[\w-]+(?===)", asked[0], re.MULTILINE) == ["delta-spark", "pyspark"]

    @pytest.mark.parametrize("version", [(3, 9, 18), (3, 15, 0)])
    def test_a_python_that_cannot_run_it_is_refused_with_the_reason(
        self, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]
    ) -> None:
        stand_in(monkeypatch, environment, "sys", version_info=version)
        with pytest.raises(SetupError, match=r"^Python 3.10 to 3.14 is needed, this is "):
            environment.check_python()

    def test_a_python_without_ensurepip_is_refused_with_the_cure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ensurepip" else object())
        with pytest.raises(SetupError) as refused:
            environment.check_python()
        assert "apt install python3-venv" in refused.value.advice

    def test_a_stamp_stands_for_one_java_and_one_description(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        java = str(java_that_says(tmp_path / "java", "17"))
        venv = tmp_path / "venv"
        runs: list[int] = []

        class Ends:
            def __init__(self, stamps: Path) -> None:
                pass

            def run(self, steps: object) -> None:
                runs.append(len(runs))
                if len(runs) == 1:
                    raise KeyboardInterrupt
                (venv / "jars").mkdir()

        monkeypatch.setattr(environment, "Steps", Ends)
        with pytest.raises(KeyboardInterrupt):
            environment.set_up(venv, java)
        assert not environment.is_ready(venv, java)
        (venv / "pyvenv.cfg").touch()
        environment.set_up(venv, java)
        assert environment.is_ready(venv, java)
        environment.set_up(venv, java)
        assert len(runs) == 2, "a third start had nothing to do"
        assert not environment.is_ready(venv, "/another/java")
        (venv / "jars").rmdir()
        assert not environment.is_ready(venv, java), "the jars could not be fetched, and may now"

    def test_what_pip_had_not_finished_is_not_taken_for_installed(self, tmp_path: Path) -> None:
        packages = tmp_path / "lib" / "python3.11" / "site-packages"
        for name, files in (("whole", ["whole.py"]), ("torn", ["torn.py", "other.py"]), ("early", [])):
            about = packages / f"{name}-1.0.dist-info"
            about.mkdir(parents=True)
            (about / "METADATA").touch()
            (packages / f"{name}.py").touch()
            if files:
                (about / "RECORD").write_text("".join(f"{file},sha256=x,1500000\n" for file in files) + "x.pyc,,\n")
        for name in ("whole-1.0", "torn-1.0"):  # names with a comma stand in quotes
            with (packages / f"{name}.dist-info" / "RECORD").open("a") as record:
                record.write(f'"{name},x.py",sha256=x,0\n../../bin/gone,sha256=x,0\n')
        (packages / "whole-1.0,x.py").touch()
        environment.forget_half_installed(tmp_path)
        assert [path.name for path in packages.glob("*.dist-info")] == ["whole-1.0.dist-info"]
        assert environment.megabytes_of(tmp_path, "whole-1.0") == 1.5

    def test_what_it_started_ends_with_it(self, tmp_path: Path) -> None:
        program = (
            "import signal, sys\nfrom pathlib import Path\nfrom jobs.setup.setup_steps import Step, Steps\n"
            "signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))\n"
            "work = lambda progress: str(progress.run(['sh', '-c', 'echo begun; exec sleep 600'], hear))\n"
            "hear = lambda line: print(line, end='', flush=True)\n"
            "Steps(Path(sys.argv[1])).run([Step('one', work, ''), Step('two', work, '')])\n"
        )
        command = [sys.executable, "-c", program, str(tmp_path / "steps")]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
            process.terminate()
            assert process.wait(timeout=120) == 143
        assert processes_of(process.pid) == {}
        assert not (tmp_path / "steps").exists()

    def test_a_second_start_waits_for_the_first(self, tmp_path: Path) -> None:
        venv = tmp_path / "venv"
        program = (
            "import sys\nfrom pathlib import Path\nfrom jobs.setup import environment as e\n"
            "venv = Path(sys.argv[1])\n"
            "e.check_java = lambda java: None\n"
            "class Steps:\n"
            "    def __init__(self, stamps):\n"
            "        stamps.mkdir()  # fails for the second of two at once\n"
            "    def run(self, steps):\n"
            "        (venv / 'jars').mkdir()\n"
            "        print('at work', flush=True)\n"
            "        sys.stdin.read()\n"
            "e.Steps = Steps\n"
            "e.set_up(venv, 'java')\n"
        )

        def start() -> subprocess.Popen[str]:
            pipe = subprocess.PIPE
            command = [sys.executable, "-c", program, str(venv)]
            return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

        first = start()
        assert first.stdout is not None
        assert first.stdout.readline() == "at work\n"
        others = [start(), start()]
        for other in others:
            assert other.stderr is not None
            assert other.stderr.readline() == "another start is setting things up: waiting for it\n"
        assert "setting up" in first.communicate(timeout=120)[1]
        assert [other.communicate(timeout=120) for other in others] == [("", "")] * 2
        assert [process.returncode for process in (first, *others)] == [0, 0, 0]
