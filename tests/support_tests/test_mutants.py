"""What the command for mutants makes of its words and of what mutmut knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import mutants
from support.mutants import Workplace, modules_of, score_of


def test_a_folder_names_its_modules_and_other_files_name_none() -> None:
    found = modules_of(["storeformat/queues", "storeformat/queues/queue_check.py", "tests/conftest.py", "absent.py"])
    assert "storeformat/queues/queue_check.py" in found
    assert len(found) == len(set(found))
    assert all(name.startswith("storeformat/queues/") and name.endswith(".py") for name in found)
    assert "storeformat/queues/__init__.py" not in found


def test_the_tests_of_a_modules_name_come_first() -> None:
    place = Workplace("storeformat/queues/queue_check.py")
    assert place.by_name == ["tests/storeformat/queues/test_queue_check.py"]
    assert place.folder == "tests/storeformat/queues"
    assert place.directory != Workplace(place.module, wide=True).directory


def know(place: Workplace, codes: dict[str, int | None]) -> None:
    found = place.directory / "mutants" / f"{place.module}.meta"
    found.parent.mkdir(parents=True)
    found.write_text(json.dumps({"exit_code_by_key": codes}))


def test_the_second_round_decides_where_it_came_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    module = "storeformat/x.py"
    assert score_of(module) == mutants.Score(module, 0, (), 0, begun=False)
    assert score_of(module).unfinished
    assert "not tried yet" in score_of(module).text
    know(Workplace(module), {"a": 1, "b": 0, "c": 33, "d": 0, "e": None, "f": -24})
    assert score_of(module) == mutants.Score(module, 2, ("b", "c", "d"), 1)
    know(Workplace(module, wide=True), {"a": None, "b": 1, "c": 0, "d": None, "e": None, "f": None})
    assert score_of(module) == mutants.Score(module, 3, ("c", "d"), 1)
    assert "3 of     5 killed   60.0%, 1 open" in score_of(module).text


def test_a_workplace_has_the_settings_of_the_project_with_its_module_and_tests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = (mutants.ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(settings)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    place = Workplace("storeformat/queues/queue_check.py", wide=True)
    place.prepare()
    made = (place.directory / "pyproject.toml").read_text()
    assert 'source_paths = ["storeformat/queues/queue_check.py"]' in made
    assert 'pytest_add_cli_args_test_selection = ["tests/storeformat/queues"]' in made
    assert len(made.splitlines()) == len(settings.splitlines()) + 2
    assert (place.directory / "storeformat").readlink() == tmp_path / "storeformat"
