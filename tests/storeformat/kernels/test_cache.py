"""Where compiled kernels are kept, and who finds them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.patching import stand_in

from storeformat.kernels import cache


def test_compiled_code_is_kept_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/proc/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = cache.cache_directory()
    assert directory is not None
    assert Path(directory).is_dir()
    assert tmp_path in Path(directory).parents
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    assert cache.cache_directory() is None


@pytest.mark.parametrize(("mode", "taken"), [(None, True), (0o700, True), (0o755, False), (0o770, False)])
def test_among_temporary_files_it_is_where_nobody_else_may_write(
    mode: int | None, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", "/proc/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"rocketmq-store-spark-{os.geteuid()}"
    if mode is not None:
        own.mkdir()
        own.chmod(mode)
    assert cache.cache_directory() == (str(own / cache.source_name()) if taken else None)
    assert own.stat().st_mode & 0o777 == (mode or 0o700)


def test_a_link_among_temporary_files_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").symlink_to(tmp_path)
    tmp_path.chmod(0o700)
    assert (cache._is_mine(tmp_path), cache._is_mine(tmp_path / "a")) == (True, False)


@pytest.mark.skipif("MUTANT_UNDER_TEST" in os.environ, reason="mutants work in their own process alone")
def test_what_was_compiled_is_found_wherever_the_sources_lie(tmp_path: Path) -> None:
    """An executor gets this program as a zip, in another directory for every application."""
    root, archive = Path(cache.__file__).parents[2], tmp_path / "program.zip"
    with zipfile.ZipFile(archive, "w") as program:
        for path in (root / "storeformat").rglob("*.py"):
            program.write(path, path.relative_to(root))
    asked = (
        "from storeformat.kernels import numba_kernels as k, numba_values as v\n"
        "print(k.__file__, *v._put_entries.stats.cache_hits.values(), len(v._put_entries.stats.cache_misses))"
    )
    settings = {**os.environ, "PYTHONPATH": str(archive)}
    said = subprocess.run([sys.executable, "-c", asked], env=settings, cwd=tmp_path, capture_output=True, check=True)
    assert said.stdout.decode() == f"{archive}/storeformat/kernels/numba_kernels.py 1 0\n"


def test_sources_that_were_changed_in_the_cache_are_put_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "sources" / "columns.py"
    assert cache._is_copied(copy, "storeformat.kernels.columns")
    source = copy.read_bytes()
    assert source == Path(cache.__file__).with_name("columns.py").read_bytes()
    copy.write_bytes(b"raise SystemExit")
    assert cache._is_copied(copy, "storeformat.kernels.columns")
    assert (copy.read_bytes(), copy.stat().st_mtime) == (source, 0)
    assert [path.name for path in copy.parent.iterdir()] == ["columns.py"]
    assert not cache._is_copied(Path("/proc/nowhere/columns.py"), "storeformat.kernels.columns")


def test_the_cache_of_a_virtual_environment_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, home = tmp_path / "environment", tmp_path / "home"
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    name = cache.source_name()
    assert cache.cache_directory() == str(environment / "kernels" / name)
    monkeypatch.setattr(sys, "base_prefix", str(environment))
    assert cache.cache_directory() == str(home / ".cache" / "rocketmq-store-spark" / "kernels" / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache.cache_directory() == str(tmp_path / "cache" / "rocketmq-store-spark" / "kernels" / name)
    stand_in(monkeypatch, cache, "os", access=lambda path, mode: mode != os.W_OK)
    assert cache.cache_directory() is None


@pytest.mark.skipif("MUTANT_UNDER_TEST" in os.environ, reason="mutants work in their own process alone")
def test_one_who_may_not_write_there_runs_what_the_environment_has_compiled(tmp_path: Path) -> None:
    asked = (
        "import os, sys\n"
        "access = os.access\n"
        "os.access = lambda path, mode: not str(path).startswith(sys.prefix) and access(path, mode)\n"
        "from storeformat.kernels import active\n"
        "name = active().NAME\n"
        "from storeformat.kernels import numba_values as v\n"
        "print(name, *v._put_entries.stats.cache_hits.values(), len(v._put_entries.stats.cache_misses))"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    settings = {**inherited, "XDG_CACHE_HOME": "/proc/nowhere", "TMPDIR": str(tmp_path)}
    root = Path(cache.__file__).parents[2]
    said = subprocess.run([sys.executable, "-c", asked], env=settings, cwd=root, capture_output=True, check=True)
    assert said.stdout.decode() == "numba 1 0\n"
    assert [path.name for path in tmp_path.iterdir()] == [f"rocketmq-store-spark-{os.geteuid()}"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of two modules in the place of the kernels', and no place for a cache yet."""
    (tmp_path / "kernels_of_a_test").mkdir()
    for name, source in (("__init__", ""), ("one", "VALUE = 1"), ("two", "from kernels_of_a_test.one import VALUE")):
        (tmp_path / "kernels_of_a_test" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(cache, "_PACKAGE", "kernels_of_a_test")
    monkeypatch.setattr(cache, "COMPILED", ("one", "two"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # so that it is put back
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setattr(cache, "cache_directory", lambda: None)
    yield importlib.import_module("kernels_of_a_test")
    for name in [name for name in sys.modules if name.startswith("kernels_of_a_test")]:
        del sys.modules[name]


def test_modules_are_imported_from_copies_in_the_cache(
    package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.import_compiled()
    assert package.__path__ == [str(tmp_path / "kernels_of_a_test")], "there is no place for a cache"
    monkeypatch.setattr(cache, "cache_directory", lambda: str(tmp_path / "cache"))
    cache.import_compiled()
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "cache")
    for name in ("one", "two"):
        module = importlib.import_module(f"kernels_of_a_test.{name}")
        assert module is getattr(package, name)
        assert module.__name__ == f"kernels_of_a_test.{name}"
        assert module.__file__ == str(tmp_path / "cache" / f"sources-{cache.source_name()}" / f"{name}.py")
        assert module.VALUE == 1
    before = package.one
    cache.import_compiled()
    assert importlib.import_module("kernels_of_a_test.one") is before


def test_a_cache_that_is_named_is_taken(package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.setattr(cache, "cache_directory", lambda: str(tmp_path / "own"))
    cache.import_compiled()
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "named")
    two = importlib.import_module("kernels_of_a_test.two")
    assert Path(str(two.__file__)).parents[1] == tmp_path / "named"


def test_copies_that_cannot_be_made_are_not_looked_for(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/nowhere")
    before = list(package.__path__)
    cache.import_compiled()
    assert package.__path__ == before
