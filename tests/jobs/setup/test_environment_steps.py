"""Each step of the set-up with a Python that only pretends: what it is told, what it says, what it leaves."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fake_java import executable, java_that_says
from support.patching import stand_in

from jobs.setup import bundle, environment
from jobs.setup.setup_steps import LeftOut, SetupError, StepProgress


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    return tmp_path / "venv"


def python_that(venv: Path, does: str) -> StepProgress:
    """Puts a program in the place of the environment's Python; it tells its arguments to ``told``."""
    told = venv.parent / "told"
    executable(venv / "bin" / "python", f'#!/bin/sh\nfor word; do echo "$word"; done > "{told}"\n{does}\n')
    return StepProgress(venv.parent / "log")


def told(venv: Path) -> list[str]:
    return (venv.parent / "told").read_text().splitlines()


def installed(venv: Path, name: str, *sizes: int) -> None:
    about = venv / "lib" / "python3.11" / "site-packages" / f"{name}.dist-info"
    about.mkdir(parents=True)
    (about.parent / f"{name}.py").touch()
    lines = [f"{name}.py,sha256=x,{size}" for size in sizes]
    (about / "RECORD").write_text("\n".join([*lines, f"{name}.dist-info/RECORD,,"]) + "\n")
    (about / "METADATA").touch()


class TestPip:
    def test_what_it_is_told(self, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(environment.WHEELS, str(venv))
        progress = python_that(venv, f'while [ "$1" != -r ]; do shift; done; cat "$2" > "{venv.parent}/wanted"')
        assert environment.pip_install(venv, "a==1 --hash=x\n", progress, "--more") == "up to date"
        words = told(venv)
        file = words[words.index("-r") + 1]
        assert words == [
            "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "--no-compile",
            "--only-binary", "numba,llvmlite", "--no-index", "--find-links", str(venv), "--require-hashes", "-r", file,
            "--more",
        ]  # fmt: skip
        assert (venv.parent / "wanted").read_text() == "a==1 --hash=x\n"
        assert not Path(file).exists()
        assert (Path(file).parent, Path(file).suffix) == (venv, ".txt")
        assert Path(file).name.startswith("requirements.")

    def test_what_it_brought(self, venv: Path) -> None:
        installed(venv, "numpy-2.4.6", 29_000_000, 1_000_000)
        installed(venv, "py_arrow-1.0", 40_000_000)
        installed(venv, "ten-1.0", 10_000_000)
        installed(venv, "small-1.0", 9_900_000)
        says = "Successfully installed numpy-2.4.6 py-arrow-1.0 small-1.0 ten-1.0 gone-1.0"
        progress = python_that(venv, f"echo '{says}'")
        assert environment.pip_install(venv, "", progress) == (
            "5 packages, 90 MB: py-arrow-1.0 40 MB, numpy-2.4.6 30 MB, ten-1.0 10 MB"
        )
        assert environment.pip_install(venv, "", python_that(venv, "echo Successfully installed gone-1.0")) == (
            "1 packages, 0 MB"
        )

    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            ("  Downloading numpy-2.4.6-cp311-manylinux.whl (16.4 MB)", "numpy (16.4 MB)"),
            ("  Using cached delta_spark-4.4.0-py3-none-any.whl (50 kB)", "delta_spark (50 kB)"),
            ("Installing collected packages: numpy, pyarrow", "installing collected packages"),
            ("Building wheels for collected packages: pyspark", "building wheels for collected packages"),
            ("Collecting numpy", ""),
        ],
    )
    def test_what_it_does_is_shown(self, venv: Path, line: str, shown: str) -> None:
        progress = python_that(venv, f"echo '{line}'")
        environment.pip_install(venv, "", progress)
        assert progress.text == shown

    @pytest.mark.parametrize(
        ("said", "reason"),
        [("echo 'ERROR: first'; echo 'ERROR: no route to host'", "no route to host"), ("echo hm", "pip failed")],
    )
    def test_why_it_failed(self, venv: Path, said: str, reason: str) -> None:
        progress = python_that(venv, f"{said}; exit 1")
        with pytest.raises(SetupError) as error:
            environment.pip_install(venv, "", progress)
        assert str(error.value) == f"the dependencies could not be installed: {reason}"
        assert error.value.advice == f"pip's output: {progress.log}"

    def test_where_wheels_come_from(self, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(environment.WHEELS, raising=False)
        assert environment.wheel_options() == []
        monkeypatch.chdir(venv.parent)
        monkeypatch.setenv(environment.WHEELS, "venv")
        assert environment.wheel_options() == ["--no-index", "--find-links", str(venv)]
        monkeypatch.setenv(environment.WHEELS, "absent")
        with pytest.raises(SetupError, match=r"^ROCKETMQ_STORE_SPARK_WHEELS: there is no directory absent$"):
            environment.wheel_options()

    def test_a_package_that_is_not_the_published_one_is_not_tried_without_numba(
        self, venv: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []

        def install(*given: Any) -> str:
            asked.append(given)
            raise bundle.NotPublished("changed")

        monkeypatch.setattr(environment, "pip_install", install)
        progress = StepProgress(venv / "log")
        with pytest.raises(bundle.NotPublished):
            environment.install_with_numba(venv, (), progress, "-r", "x")
        assert asked == [(venv, environment.locked(environment.SETUP), progress, "-r", "x")]

    def test_spark_is_built_by_what_is_locked(self, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[Any, ...]] = []
        monkeypatch.setattr(environment, "pip_install", lambda *given: asked.append(given) or "done")
        progress = StepProgress(venv / "log")
        assert environment.install_spark(venv, progress) == "done"
        ((place, _, heard, *more),) = asked
        assert (place, heard, more) == (venv, progress, ["--no-build-isolation", "--use-pep517"])


class TestSteps:
    def test_an_environment_that_works_is_kept(self, venv: Path) -> None:
        (venv / "lib").mkdir()
        progress = python_that(venv, "")
        assert environment.create_venv(venv, progress) == f"Python of unknown version, {venv}"
        (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.13.0\n")
        about = environment.create_venv(venv, progress)
        assert about == f"Python 3.13.0, {venv}", "that of the environment, not of the one who asks"
        assert told(venv)[-3:] == ["-m", "pip", "--version"]
        assert (venv / "lib").is_dir()

    def test_one_without_pip_is_made_anew(self, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (venv / "lib").mkdir()
        progress = python_that(venv, "exit 1")
        executable(
            venv.parent / "another", f'#!/bin/sh\necho "$@" > "{venv.parent}/made"; echo one; echo no room; exit 1\n'
        )
        monkeypatch.setattr(sys, "executable", str(venv.parent / "another"))
        with pytest.raises(SetupError) as error:
            environment.create_venv(venv, progress)
        assert str(error.value) == f"{sys.executable} cannot make a virtual environment: no room"
        assert (venv.parent / "made").read_text() == f"-m venv {venv}\n"
        assert not (venv / "lib").exists()

    @pytest.mark.parametrize(
        ("says", "text"), [("echo numba kernels", "compiled"), ("echo", "numpy alone, nothing to compile")]
    )
    def test_kernels(self, venv: Path, says: str, text: str) -> None:
        progress = python_that(venv, f'{says}; [ "$PYTHONPATH" = "{environment.ROOT}" ]')
        assert environment.compile_kernels(venv, progress) == text
        assert told(venv) == ["-m", "storeformat.kernels.compile"]

    def test_kernels_that_do_not_compile_are_left_to_the_jobs(self, venv: Path) -> None:
        progress = python_that(venv, "exit 1")
        with pytest.raises(LeftOut) as left:
            environment.compile_kernels(venv, progress)
        assert str(left.value) == f"not compiled ({progress.log}): jobs try again"

    def test_a_class_archive(self, venv: Path, tmp_path: Path) -> None:
        java = str(java_that_says(tmp_path / "java", "21"))
        for name in ("spark.jsa", "spark.jsa.draft"):
            (venv / name).write_text("old")
        progress = python_that(
            venv,
            f"[ -e '{venv}/spark.jsa' ] || [ -e '{venv}/spark.jsa.draft' ] && exit 1\n"
            f'echo "$SPARK_SUBMIT_OPTS|$PYTHONPATH|$ROCKETMQ_STORE_SPARK_KERNELS" > "{tmp_path}/given"\n'
            f"head -c 2600000 /dev/zero > '{venv}/spark.jsa.draft'",
        )
        assert environment.archive_classes(venv, java, progress) == "Java 21, 3 MB"
        assert "\n".join(told(venv)) == f"-c\n{environment.TRAINING}"
        assert (tmp_path / "given").read_text() == (
            f'-XX:ArchiveClassesAtExit="{venv}/spark.jsa.draft" -Xlog:cds=off -Xlog:cds+dynamic=off'
            f"|{environment.ROOT}|numpy\n"
        )
        assert (venv / "spark.jsa").stat().st_size == 2_600_000
        assert not (venv / "spark.jsa.draft").exists()

    @pytest.mark.parametrize(
        ("said", "found"), [("16.0.2", "{} is 16"), ("x", "{} is no Java"), (None, "there is none")]
    )
    def test_without_a_java_for_spark_the_rest_is_set_up(
        self, venv: Path, tmp_path: Path, said: str | None, found: str
    ) -> None:
        java = "" if said is None else str(java_that_says(tmp_path / "java", said))
        with pytest.raises(LeftOut) as left:
            environment.archive_classes(venv, java, python_that(venv, ""))
        assert str(left.value) == (
            f"Spark needs Java 17 or later, and {found.format(java)}: only jobs that read little will do"
        )

    def test_bytecode(self, venv: Path) -> None:
        packages = venv / "lib" / "python3.12" / "site-packages"
        packages.mkdir(parents=True)
        assert environment.compile_bytecode(venv, python_that(venv, "")) == "compiled"
        ours = [str(environment.ROOT / name) for name in ("jobs", "udfs", "storeformat")]
        assert told(venv) == ["-m", "compileall", "-q", "-j", "0", str(packages), *ours]
        progress = python_that(venv, "exit 1")
        with pytest.raises(LeftOut) as left:
            environment.compile_bytecode(venv, progress)
        assert str(left.value) == f"not all compiled ({progress.log}): starts may take a second longer"

    @pytest.mark.parametrize("does", ["exit 0", "touch '{}/spark.jsa.draft'; exit 1"])
    def test_a_class_archive_that_is_not_made_costs_time_alone(self, venv: Path, does: str) -> None:
        progress = python_that(venv, does.format(venv))
        with pytest.raises(LeftOut) as left:
            environment.archive_classes(venv, str(java_that_says(venv.parent / "java", "21")), progress)
        assert str(left.value) == f"not made ({progress.log}): starts take 1.5 s longer"
        assert not (venv / "spark.jsa").exists()

    @pytest.mark.parametrize("by_spark", [False, True])
    def test_what_each_needs_and_is_made_from(
        self, venv: Path, by_spark: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[tuple[Any, ...]] = []
        for place, name in (
            (environment, "create_venv"), (environment.delta_jars, "fetch"), (environment, "install_with_numba"),
            (environment, "compile_kernels"), (environment, "install_spark"), (environment, "compile_bytecode"),
            (environment, "archive_classes"),
        ):  # fmt: skip
            monkeypatch.setattr(place, name, lambda *given, name=name: calls.append((name, *given)) or name)
        monkeypatch.setattr(environment.delta_jars, "need_spark", lambda: by_spark)
        steps = environment.steps_of(venv, "/j")
        assert {step.name: step.after for step in steps} == {
            "environment": (), "jars": ("Spark",) if by_spark else (), "libraries": ("environment",),
            "kernels": ("libraries",), "Spark": ("libraries",), "bytecode": ("Spark",),
            "class archive": ("Spark",),
        }  # fmt: skip
        progress = StepProgress(venv / "log")
        assert [step.work(progress) for step in steps] == [call[0] for call in calls]
        assert [call[1:] for call in calls] == [
            (venv, progress), (venv, environment.pinned_versions(), progress), (venv, environment.SPARK, progress),
            (venv, progress), (venv, progress), (venv, progress), (venv, "/j", progress),
        ]  # fmt: skip
        keys = {step.name: step.key for step in steps}
        assert keys["libraries"] == keys["kernels"] == keys["Spark"]
        assert all(re.fullmatch(r"[0-9a-f]{64}", keys[name]) for name in ("libraries", "jars"))
        assert keys["libraries"] != keys["jars"]
        assert keys["environment"] == f"{sys.version}\n{sys.prefix}"
        assert keys["bytecode"] == f"{keys['libraries']}\n{environment.ROOT}"
        assert keys["class archive"] == f"/j\n/j\n{keys['libraries']}"

    def test_versions_of_spark_and_delta_are_pinned(self) -> None:
        assert set(environment.SPARK) <= set(environment.pinned_versions())


class TestExtras:
    def test_one_that_is_there(self, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        done: list[Any] = []
        monkeypatch.setattr(
            environment,
            "install_with_numba",
            lambda where, left_out, progress, *more: done.append((where, left_out, *more)) or "x",
        )
        environment.install_extra(venv, "rocksdb")
        environment.install_extra(venv, "rocksdb")
        assert done == [(venv, (), "-r", str(environment.REQUIREMENTS / "rocksdb.txt"))]
        assert [path.name for path in (venv / "steps").iterdir()] == ["extra-rocksdb"]
        assert re.fullmatch(r"[0-9a-f]{64}", (venv / "steps" / "extra-rocksdb").read_text())

    def test_one_that_is_not(self, venv: Path) -> None:
        with pytest.raises(SetupError) as error:
            environment.install_extra(venv, "absent")
        assert (str(error.value), error.value.advice) == ("there is no extra absent", "conf/requirements has them")


class TestRefusals:
    @pytest.mark.parametrize("version", [(3, 10, 0), (3, 14, 9)])
    def test_the_oldest_and_the_newest_python_do(
        self, version: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stand_in(monkeypatch, environment, "sys", version_info=version)
        environment.check_python()

    @pytest.mark.parametrize(("implementation", "largest"), [("PyPy", 2**63 - 1), ("CPython", 2**31 - 1)])
    def test_another_kind_of_python(self, implementation: str, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(environment.platform, "python_implementation", lambda: implementation)
        monkeypatch.setattr(environment.platform, "architecture", lambda: ("32bit", ""))
        stand_in(monkeypatch, environment, "sys", maxsize=largest)
        with pytest.raises(SetupError) as error:
            environment.check_python()
        assert str(error.value) == f"a 64-bit CPython is needed, this is {implementation} 32bit ({sys.executable})"
        assert error.value.advice == "name another in ROCKETMQ_STORE_SPARK_PYTHON"

    @pytest.mark.parametrize("lacks", ["venv", "ensurepip"])
    def test_one_that_makes_no_environments(self, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == lacks else object())
        with pytest.raises(SetupError) as error:
            environment.check_python()
        assert str(error.value) == f"{sys.executable} cannot make a virtual environment: it has no venv and ensurepip"
        assert error.value.advice == "on Debian and Ubuntu: apt install python3-venv"

    @pytest.mark.parametrize(
        ("there", "ours"),
        [
            (["steps", "setup-jars.log", "jars", "jars.x", "bundle.y"], True),
            (["lib", "pyvenv.cfg"], True),
            (["setup-jars.logs"], False), (["my-jars"], False), (["steps2"], False),
        ],
    )  # fmt: skip
    def test_what_is_in_its_place(self, tmp_path: Path, there: list[str], ours: bool) -> None:
        for name in there:
            (tmp_path / name).touch()
        if ours:
            environment.check_venv(tmp_path)
            environment.check_venv(tmp_path / "absent")
            return
        with pytest.raises(SetupError) as error:
            environment.check_venv(tmp_path)
        assert str(error.value) == f"{tmp_path} exists and is not a virtual environment"
        assert error.value.advice == "remove it, or set ROCKETMQ_STORE_SPARK_VENV to another place"
