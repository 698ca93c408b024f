"""Each module has tests that one finds by its name: those of ``a/b/c.py`` are in ``tests/a/b/test_c.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    # What a part proves shows only in the whole: in a log that is damaged, a store that is compared, a page.
    "jobs/log/log_scan.py": "tests/jobs/log/test_damage_property.py",
    "jobs/log/queue_runs.py": "tests/jobs/rebuild/test_planning.py",
    "jobs/publish/backups.py": "tests/jobs/publish/test_crashes.py",
    "jobs/rebuild/build_store.py": "tests/jobs/test_rebuild_golden.py",
    "jobs/report/plain_outcomes.py": "tests/jobs/report/test_plain_checks.py",
    "jobs/report/plots.py": "tests/jobs/report/test_page.py",
    "jobs/verify/compare_queues.py": "tests/jobs/verify/test_judge_queues.py",
    "jobs/verify/differences.py": "tests/jobs/verify/test_verify.py",
    "jobs/verify/judge_checkpoint.py": "tests/jobs/verify/test_verify.py",
    # Spark calls it, or it is Spark that is called.
    # The command line is what is tested.
    "jobs/__main__.py": "tests/test_spark_submit.py",
}
"""Modules whose tests have another name, and where those are."""
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in ("storeformat", "udfs", "jobs")
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__init__.py"
)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_tests(module: str) -> None:
    folder, _, name = module.rpartition("/")
    named = ROOT / "tests" / folder / f"test_{name}"
    assert named.is_file() != (module in ELSEWHERE), "tests by its name, or a line in ELSEWHERE: one of both"
    assert named.is_file() or (ROOT / ELSEWHERE[module]).is_file()


def test_no_exception_is_for_nothing() -> None:
    assert set(ELSEWHERE) <= set(MODULES)
