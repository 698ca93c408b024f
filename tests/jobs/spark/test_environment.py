"""The first start: what it looks at, and that it is done once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.fake_java import java_that_says
from support.processes import processes_of

from jobs.spark import environment

ROOT = Path(__file__).resolve().parents[3]
JAVA = shutil.which("java")


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
