"""The command that compiles the kernels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from storeformat.kernels import active
from storeformat.kernels import compile as compile_module
from storeformat.kernels.compile import main


def test_it_says_which_kernels_this_environment_uses(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert capsys.readouterr().out.startswith(f"{active().NAME} kernels")


def test_it_says_where_compiled_code_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = SimpleNamespace(NAME="numba")
    monkeypatch.setattr(compile_module, "active", lambda: kernels)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/cache")
    main()
    assert capsys.readouterr().out == "numba kernels, compiled in /cache\n"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    main()
    assert capsys.readouterr().out == "numba kernels\n"
    kernels.NAME = "numpy"
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/cache")
    main()
    assert capsys.readouterr().out == "numpy kernels\n"
