"""Where compiled kernels are kept, and who finds them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from storeformat.kernels import cache


def test_compiled_code_is_kept_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/proc/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = cache.cache_directory()
    assert directory is not None
    assert Path(directory).is_dir()
    assert tmp_path in Path(directory).parents
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert cache.cache_directory() is None


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
    copy = cache._copied(tmp_path / "sources" / "columns.py", "storeformat.kernels.columns")
    assert copy is not None
    source = copy.read_bytes()
    assert source == Path(cache.__file__).with_name("columns.py").read_bytes()
    copy.write_bytes(b"raise SystemExit")
    again = cache._copied(copy, "storeformat.kernels.columns")
    assert again is not None
    assert (again.read_bytes(), again.stat().st_mtime) == (source, 0)
    assert [path.name for path in copy.parent.iterdir()] == ["columns.py"]
    assert cache._copied(Path("/proc/nowhere/columns.py"), "storeformat.kernels.columns") is None
