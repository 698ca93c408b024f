"""An oracle that shared a table with the program would share its mistakes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parent.parent / "support"
ORACLES = (
    "broker_check", "broker_index", "broker_model", "broker_settings", "entry_log", "golden", "golden_differences",
    "java_rules", "messages_model", "offsets_model", "store_builder", "timer_model", "views_model",
)  # fmt: skip


def imported(module: str) -> set[str]:
    """The modules that a module of ``support`` imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((SUPPORT / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize("oracle", ORACLES)
def test_an_oracle_imports_nothing_of_the_program_and_only_oracles(oracle: str) -> None:
    names = imported(oracle)
    assert {name.partition(".")[0] for name in names} & {"storeformat", "udfs", "jobs"} == set()
    assert {name.split(".")[1] for name in names if name.startswith("support.")} <= set(ORACLES)
