"""The command that compiles the kernels."""

from __future__ import annotations

import pytest

from storeformat.kernels import active
from storeformat.kernels.compile import main


def test_it_says_which_kernels_this_environment_uses(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert capsys.readouterr().out.startswith(f"{active().NAME} kernels")
