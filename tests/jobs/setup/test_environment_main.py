"""What the command line of the set-up does, without setting anything up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.patching import stand_in

from jobs.setup import environment
from jobs.setup.setup_steps import SetupError, StepProgress
from storeformat.errors import WriteFailed

Run = Callable[..., int]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the command line led to: name and arguments."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(environment, "set_up", lambda *given: found.append(("set_up", *given)))
    monkeypatch.setattr(environment, "install_extra", lambda *given: found.append(("extra", *given)))
    monkeypatch.setattr(environment.packing, "pack", lambda *given: found.append(("pack", *given)))
    monkeypatch.setattr(environment.bundle, "write", lambda *given: found.append(("bundle", *given)))
    monkeypatch.setattr(environment.s3_jars, "fetch", lambda venv, progress: f"{venv}: jars, {progress.log.name}")
    stand_in(monkeypatch, environment, "os", execv=lambda *given: found.append(("execv", *given)))
    stand_in(monkeypatch, environment, "signal", signal=lambda *given: None)
    return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, called: list[tuple[Any, ...]]) -> Run:
    def of(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["environment.py", *words])
        with pytest.raises(SystemExit) as ended:
            environment.main()
        return int(ended.value.code or 0)

    return of


def test_a_set_up(run: Run, called: list[tuple[Any, ...]]) -> None:
    assert run() == 0
    assert run("--venv", "v", "--java", "/j", "--from", "f.tar") == 0
    assert called == [("set_up", Path(sys.prefix), "java", None), ("set_up", Path("v").absolute(), "/j", Path("f.tar"))]


def test_the_other_things_that_it_does(
    run: Run, called: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    venv = ("--venv", str(tmp_path))
    assert run("--pack", "p.tar.gz") == 0
    assert run(*venv, "--extra", "rocksdb") == 0
    assert run(*venv, "--bundle", "b.tar") == 0
    (tmp_path / "lib" / "python3.11" / "site-packages" / "numba-0.60.0.dist-info").mkdir(parents=True)
    assert run(*venv, "--bundle", "b.tar") == 0
    packed, extra, without, with_numba = called
    assert packed == ("pack", Path("p.tar.gz").absolute())
    assert extra == ("extra", tmp_path, "rocksdb")
    assert without[:3] == with_numba[:3] == ("bundle", Path("b.tar").absolute(), tmp_path)
    assert "numba==" in with_numba[3]
    assert "numba==" not in without[3]
    called.clear()
    assert run(*venv, "--with", "s3") == 0
    assert called == [("set_up", tmp_path, "java", None)]
    assert f"{tmp_path}: jars, setup-s3.log" in capsys.readouterr().err


def test_after_it_comes_the_job(monkeypatch: pytest.MonkeyPatch, called: list[tuple[Any, ...]], tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["environment.py", "--venv", str(tmp_path), "--", "verify", "--store", "--"])
    environment.main()
    python = str(tmp_path / "bin" / "python")
    assert called[1:] == [
        ("execv", python, [python, str(environment.ROOT / "jobs" / "__main__.py"), "verify", "--store", "--"])
    ]


@pytest.mark.parametrize(
    ("error", "words", "code", "said"),
    [
        (KeyboardInterrupt(), (), 130, "interrupted; the next start continues the set-up"),
        (SetupError("no java", "install one"), (), 69, "error: no java\n  install one"),
        (SetupError("no java"), (), 69, "error: no java\n"),
        (WriteFailed("disk is full", path="/v"), (), 74, "error: "),
        (OSError("odd"), (), 69, "error: the set-up failed: odd"),
        (OSError("odd"), ("--pack", "p"), 74, "error: p cannot be written: odd"),
        (OSError("odd"), ("--bundle", "b"), 74, "error: b cannot be written: odd"),
    ],
)
def test_how_it_ends(
    error: BaseException, words: tuple[str, ...], code: int, said: str,
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fail(*_: Any) -> None:
        raise error

    for place, name in ((environment, "set_up"), (environment.packing, "pack"), (environment.bundle, "write")):
        monkeypatch.setattr(place, name, fail)
    assert run(*words) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--with", "hdfs"), ("--nothing",), ("--pac", "x")])
def test_a_wrong_command_line(run: Run, called: list[tuple[Any, ...]], words: tuple[str, ...]) -> None:
    assert run(*words) == 64
    assert called == []
    assert run("--help") == 0


def test_the_stamp_comes_last_and_a_bundle_takes_the_place_of_what_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    venv, done = tmp_path / "venv", []

    class Steps:
        def __init__(self, directory: Path) -> None:
            directory.mkdir(exist_ok=True)

        def run(self, steps: list[Any]) -> None:
            assert not (venv / "ready").exists()
            done.append(
                [environment.os.environ.get(name) for name in (environment.WHEELS, "ROCKETMQ_STORE_SPARK_JARS")]
            )

    @contextmanager
    def unpacked(archive: Path | None, where: Path) -> Any:
        assert where == venv
        yield archive

    monkeypatch.setattr(environment, "Steps", Steps)
    monkeypatch.setattr(environment.bundle, "unpacked", unpacked)
    for name in (environment.WHEELS, environment.delta_jars.JARS):
        monkeypatch.setenv(name, "")
    environment.fill(venv, "/j", None)
    assert "once: some 600 MB" in capsys.readouterr().err
    assert (venv / "ready").read_text().split("\n")[:2] == ["/j", environment.digest()]
    (venv / "ready").unlink()
    environment.fill(venv, "/j", tmp_path / "unpacked")
    assert "what is left of it" in capsys.readouterr().err
    assert done == [["", ""], [str(tmp_path / "unpacked" / name) for name in ("wheels", "jars")]]
    assert not (venv / "ready.draft").exists()


def test_a_package_that_is_not_the_published_one_is_named(tmp_path: Path) -> None:
    progress = StepProgress(tmp_path / "log")
    one = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES.\n    {0}==1 from index:\n        Expected sha256 a\n"
    one += "             Got        {0}b0\n"
    progress.log.write_text(one.format("aa"))
    with pytest.raises(environment.bundle.NotPublished, match="aa==1 from index has SHA-256 aab0"):
        environment.bundle.check_hashes(progress)
    progress.log.write_text("all is well")
    environment.bundle.check_hashes(progress)
