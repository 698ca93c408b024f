"""What the command for mutants makes of its words and of what mutmut knows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support import mutants
from support.mutants import NO_MUTANT, Workplace, changed_since, modules_of, mutants_at, sample_of, score_of, try_sample


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


def know(place: Workplace, codes: dict[str, int | None], module: str = "") -> None:
    found = place.directory / "mutants" / f"{module or place.module}.meta"
    found.parent.mkdir(parents=True, exist_ok=True)
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
    place.prepare(few=True)
    fewer = (place.directory / "pyproject.toml").read_text()
    without = fewer.replace('"--hypothesis-profile", "few", ', "", 1)
    assert made != without != fewer
    assert without.replace("not thorough and ", "", 1) == made


SOURCE = """\
A = 1
def one():
    return 1

class Two:
    b = 2
    def three(self):
        def inner():
            return 3
        return inner
    @staticmethod
    def four():
        return 4
"""


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (1, []),
        (2, ["*.x_one__mutmut_*"]),
        (3, ["*.x_one__mutmut_*"]),
        (6, []),
        (9, ["*.xǁTwoǁthree__mutmut_*"]),
        (13, ["*.xǁTwoǁfour__mutmut_*"]),
    ],
)
def test_mutants_of_a_line_are_those_of_its_function(line: int, names: list[str]) -> None:
    assert mutants_at(SOURCE, {line}) == names


def test_functions_that_differ_from_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "storeformat").mkdir()
    first, second = tmp_path / "storeformat" / "first.py", tmp_path / "storeformat" / "second.py"
    for path in (first, second):
        path.write_text(SOURCE)
    git("init")
    git("add", ".")
    git("commit", "-m", "before")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    assert changed_since("HEAD") == {}
    first.write_text(SOURCE.replace("        def inner():\n            return 3\n", "        inner = 3\n"))
    second.write_text(SOURCE.replace("return 1", "return 5").replace("return 4", "return 6\n\ndef five(): return 5"))
    assert changed_since("HEAD") == {
        "storeformat/second.py": ["*.x_one__mutmut_*", "*.xǁTwoǁfour__mutmut_*", "*.x_five__mutmut_*"],
        "storeformat/first.py": ["*.xǁTwoǁthree__mutmut_*"],
    }


def test_a_score_may_be_of_some_mutants_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    know(Workplace("storeformat/x.py"), {"x.x_a__mutmut_1": 1, "x.x_a__mutmut_2": 0, "x.x_b__mutmut_1": None})
    assert score_of("storeformat/x.py", ["*.x_a__mutmut_*"]) == mutants.Score(
        "storeformat/x.py", 1, ("x.x_a__mutmut_2",), 0, left_out=1
    )
    assert "1 of     2 killed   50.0%, 1 left out" in score_of("storeformat/x.py", ["*.x_a__mutmut_*"]).text


def test_a_sample_is_drawn_from_all_names_alike_and_again_the_same() -> None:
    names = [f"x.x_a__mutmut_{number}" for number in range(1000)]
    drawn = sample_of(names, 100, "")
    assert drawn == sample_of(reversed(names), 100, "") != sample_of(names, 100, "another")
    assert len(drawn) == 100 == len(drawn & set(names))
    assert drawn >= sample_of(names, 50, "")
    assert 25 < len(drawn & set(names[:500])) < 75
    assert sample_of(names[:3], 100, "") == set(names[:3])


def test_a_sample_of_a_folder_has_a_score_for_each_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("a.py", "inner/b.py", "__init__.py"):
        path = tmp_path / "jobs" / "room" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "pyproject.toml").write_text((mutants.ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    place = Workplace("jobs/room", wide=True)
    first, second = {f"a.{n}": None for n in range(3)}, {f"b.{n}": None for n in range(3)}
    calls: list[list[str]] = []

    def run(_: Workplace, names: list[str], deadline: float, children: int) -> bool:
        """Kills the mutants that it is asked to try but for those of the second module."""
        calls.append(names)
        know(place, {name: 1 if name in names else None for name in first}, "jobs/room/a.py")
        know(place, {name: 0 if name in names else None for name in second}, "jobs/room/inner/b.py")
        return True

    monkeypatch.setattr(Workplace, "run", run)
    scores = try_sample(place, 4, "seed", 0.0, 1)
    drawn = sample_of([*first, *second], 4, "seed")
    assert [calls[0], set(calls[1])] == [[NO_MUTANT], drawn]
    of_first, of_second = len(drawn & set(first)), tuple(name for name in second if name in drawn)
    assert scores == [
        mutants.Score("jobs/room/a.py", of_first, (), 0, left_out=3 - of_first),
        mutants.Score("jobs/room/inner/b.py", 0, of_second, 0, left_out=3 - len(of_second)),
    ]
    assert try_sample(place, 4, "seed", 0.0, 1) == scores
    assert len(calls) == 2
    made = (place.directory / "pyproject.toml").read_text()
    assert 'source_paths = ["jobs/room/a.py", "jobs/room/inner/b.py"]' in made
    assert 'pytest_add_cli_args_test_selection = ["tests/jobs/room"]' in made
