"""Mutation testing with mutmut, module by module: which small mistakes do the tests not notice?

Each module has a workplace ``target/mutants/MODULE``, where mutmut keeps what it knows: a call that is cut short, by
Ctrl-C or ``--minutes``, goes on there, and a module that did not change costs nothing. A module is tested by the tests
of its name first; what survives these is tried again with all quick tests of its folder. A sample is drawn from all
modules of a folder, which share one workplace and its quick tests.

=========  ===========================================================================================================
killed     a test failed, or the mutant did not end
survived   all tests passed, or none reaches the mutant
open       not tried yet
=========  ===========================================================================================================
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("storeformat", "udfs", "jobs")
LINKED = (*PACKAGES, "tests", "conf", "notebooks", "README.md", "spark-submit.sh")
SECTION = "[tool.mutmut]\n"
PYTEST_OPTIONS = "pytest_add_cli_args = [\n    "
MARKERS = '"-m", "not spark and '
NO_MUTANT = "no mutant"
"""A name that none has: mutmut makes all mutants before it looks for it."""
SURVIVED = frozenset({0, 5, 33})
"""Exit codes that mutmut keeps for: all tests passed, pytest found none, no test reaches the function."""


@dataclass(frozen=True)
class Score:
    """What became of the mutants of one module."""

    module: str
    killed: int
    survivors: tuple[str, ...]
    open: int
    begun: bool = True
    left_out: int = 0
    """Those that no pattern asks for."""

    @property
    def unfinished(self) -> bool:
        return bool(self.open) or not self.begun

    @property
    def text(self) -> str:
        if not self.begun:
            return f"{self.module:<50} not tried yet"
        tried = self.killed + len(self.survivors)
        share = f"{self.killed / tried:.1%}" if tried else "-"
        rest = f", {self.open} open" if self.open else ""
        rest += f", {self.left_out} left out" if self.left_out else ""
        return f"{self.module:<50} {self.killed:>5} of {tried:>5} killed  {share:>6}{rest}"


@dataclass(frozen=True)
class Workplace:
    """Where mutmut works on one module: with the tests of its name, or with all of its folder; or on all modules of a
    folder. Each has a directory of its own, since mutmut forgets what it knows when the tests change.
    """

    module: str
    """A file or a folder."""
    wide: bool = False

    @property
    def directory(self) -> Path:
        name = self.module.removesuffix(".py").replace("/", ".")
        return ROOT / "target" / "mutants" / (f"{name}.folder" if self.wide else name)

    @property
    def folder(self) -> str:
        """The tests of the folder, or of the folder that the module is in."""
        path = Path(self.module)
        return f"tests/{(path.parent if path.suffix else path).as_posix()}"

    @property
    def by_name(self) -> list[str]:
        """The tests of the module's name: ``test_x.py`` and, of its parts, ``test_x_*.py``."""
        folder, stem = ROOT / self.folder, Path(self.module).stem
        found = [*folder.glob(f"test_{stem}.py"), *folder.glob(f"test_{stem}_*.py")]
        return sorted(path.relative_to(ROOT).as_posix() for path in found)

    def prepare(self, *, few: bool = False) -> None:
        """Makes the directory, and a pyproject.toml with these modules and their tests in it; ``few`` as in the fast
        tests: few examples, and nothing thorough.
        """
        tests = [self.folder] if self.wide else self.by_name
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in LINKED:
            link = self.directory / name
            if not link.is_symlink():
                link.symlink_to(ROOT / name)
        settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        modules = [self.module] if Path(self.module).suffix else modules_of([self.module])
        chosen = f"source_paths = {json.dumps(modules)}\n"
        chosen += f"pytest_add_cli_args_test_selection = {json.dumps(tests)}\n"
        assert SECTION in settings
        text = settings.replace(SECTION, SECTION + chosen)
        if few:
            assert PYTEST_OPTIONS in text
            assert MARKERS in text
            text = text.replace(PYTEST_OPTIONS, PYTEST_OPTIONS + '"--hypothesis-profile", "few", ')
            text = text.replace(MARKERS, MARKERS + "not thorough and ")
        (self.directory / "pyproject.toml").write_text(text, encoding="utf-8")

    def run(self, names: Iterable[str], deadline: float, children: int) -> bool:
        """Lets mutmut try these mutants, or all that are open; returns whether it ended by itself."""
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(children), *names]
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        with (self.directory / "mutmut.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.directory, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                process.wait(timeout=max(deadline - time.monotonic(), 1))
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as end:
                os.killpg(process.pid, signal.SIGINT)
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                if isinstance(end, KeyboardInterrupt):
                    raise
                return False
        return True

    def results(self, module: str) -> Path:
        return self.directory / "mutants" / f"{module}.meta"

    @property
    def has_results(self) -> bool:
        return self.results(self.module).is_file()

    def codes(self, module: str = "") -> dict[str, int | None]:
        """Returns mutmut's exit code of each mutant (of one module of a folder), None for those not tried."""
        found = self.results(module or self.module)
        return json.loads(found.read_text())["exit_code_by_key"] if found.is_file() else {}

    def diff(self, name: str) -> str:
        """Returns a mutant as a diff."""
        shown = subprocess.run(
            [sys.executable, "-m", "mutmut", "show", name],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        return shown.stdout.strip() or f"# {name}: {shown.stderr.strip()}"


def score_of(module: str, only: Sequence[str] = ()) -> Score:
    """Returns what is known so far of a module, or of those of its mutants whose names fit a pattern."""
    narrow, wide = Workplace(module).codes(), Workplace(module, wide=True).codes()
    codes = {
        name: narrow.get(name) if wide.get(name) is None else wide[name]
        for name in narrow or wide
        if not only or any(fnmatch(name, pattern) for pattern in only)
    }
    survivors = tuple(name for name, code in codes.items() if code in SURVIVED)
    waiting = sum(code is None for code in codes.values())
    begun = Workplace(module).has_results or Workplace(module, wide=True).has_results
    left_out = len(narrow or wide) - len(codes)
    return Score(module, len(codes) - len(survivors) - waiting, survivors, waiting, begun, left_out)


def try_module(module: str, deadline: float, children: int, only: Sequence[str] = (), *, few: bool = False) -> Score:
    """Returns the score of a module after as much of the work as there is time for; ``only`` are patterns of names."""
    narrow, wide = Workplace(module), Workplace(module, wide=True)
    left: list[str] = []
    if narrow.by_name:
        narrow.prepare(few=few)
        if not narrow.run(only, deadline, children):
            return score_of(module, only)
        refuse_failure(narrow)
        tried = wide.codes()
        left = [name for name in score_of(module, only).survivors if tried.get(name) is None]
    if (left or not narrow.by_name) and (ROOT / wide.folder).is_dir() and time.monotonic() < deadline:
        wide.prepare(few=few)
        if wide.run(left or only, deadline, children):
            refuse_failure(wide)
    return score_of(module, only)


def try_sample(
    place: Workplace, count: int, seed: str, deadline: float, children: int, *, few: bool = False
) -> list[Score]:
    """Returns the scores of a folder's modules by so many mutants, drawn from all of them alike."""
    modules = modules_of([place.module])
    place.prepare(few=few)
    if not any(place.codes(module) for module in modules):
        place.run([NO_MUTANT], deadline, children)
    known = {module: place.codes(module) for module in modules}
    drawn = sample_of((name for codes in known.values() for name in codes), count, seed)
    left = [name for codes in known.values() for name, code in codes.items() if name in drawn and code is None]
    if left and place.run(left, deadline, children):
        refuse_failure(place, modules)
    scores = []
    for module in modules:
        codes = {name: code for name, code in place.codes(module).items() if name in drawn}
        survivors = tuple(name for name, code in codes.items() if code in SURVIVED)
        waiting = sum(code is None for code in codes.values())
        left_out = len(known[module]) - len(codes)
        scores.append(Score(module, len(codes) - len(survivors) - waiting, survivors, waiting, left_out=left_out))
    return scores


def sample_of(names: Iterable[str], count: int, seed: str) -> frozenset[str]:
    """Returns so many names, drawn by a hash, so that a call with the same seed draws the same."""
    return frozenset(sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:count])


def refuse_failure(place: Workplace, modules: Sequence[str] = ("",)) -> None:
    """Ends the program where mutmut tried no mutant because it, or a test without one, failed."""
    codes = [code for module in modules for code in place.codes(module).values()]
    if any(code is not None for code in codes):
        return
    log = place.directory / "mutmut.log"
    said = log.read_bytes()
    if b"rror" in said and b"but nothing matches" not in said:
        sys.exit(f"mutmut could not work on {place.module}: see {log}")


def modules_of(words: Iterable[str]) -> list[str]:
    """Returns the modules that words name: files or folders of the packages."""
    found = []
    for word in words:
        path = (ROOT / word).resolve()
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        found += [file.relative_to(ROOT).as_posix() for file in files]
    return [name for name in dict.fromkeys(found) if is_mutated(name)]


def is_mutated(name: str) -> bool:
    """Returns whether a file is a module of ours that holds more than a docstring."""
    path = ROOT / name
    return (
        name.startswith(tuple(f"{package}/" for package in PACKAGES))
        and path.suffix == ".py"
        and path.is_file()
        and path.name not in {"__init__.py", "__main__.py"}
    )


def changed_since(commit: str) -> dict[str, list[str]]:
    """Returns the modules that differ from a commit, in commits or in the working tree, those with most changes first,
    and for each the names of its changed functions' mutants, as patterns.
    """
    lines = {
        name: changed_lines(name, commit) for name in modules_of(git_diff("--name-only", commit, *PACKAGES).split())
    }
    found = {name: mutants_at((ROOT / name).read_text(encoding="utf-8"), lines[name]) for name in lines}
    return {name: found[name] for name in sorted(lines, key=lambda name: -len(lines[name])) if found[name]}


def git_diff(option: str, commit: str, *paths: str) -> str:
    command = ["git", "diff", option, "--diff-filter=d", "--merge-base", commit, "--", *paths]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def changed_lines(name: str, commit: str) -> set[int]:
    """Returns the numbers of the lines of a file that differ from a commit, or before which lines are gone."""
    hunks = re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", git_diff("-U0", commit, name), re.MULTILINE)
    return {line for begin, count in hunks for line in range(int(begin), int(begin) + max(int(count or 1), 1))}


def mutants_at(source: str, lines: set[int]) -> list[str]:
    """Returns, as patterns, the names that mutmut gives to mutants of the functions and methods in which lines lie."""
    found = []
    for outer in ast.parse(source).body:
        for inner in outer.body if isinstance(outer, ast.ClassDef) else [outer]:
            is_function = isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef))
            if is_function and lines & set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)):
                prefix = f"xǁ{outer.name}ǁ" if isinstance(outer, ast.ClassDef) else "x_"
                found.append(f"*.{prefix}{inner.name}__mutmut_*")
    return found


def main() -> int:
    """Tries the mutants that the command line asks for; exit code 1 where some survive or are open."""
    parser = argparse.ArgumentParser(
        prog=".ci/mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="a file or a folder, such as storeformat/queues")
    parser.add_argument("--since", metavar="COMMIT", help="the functions that differ from it")
    parser.add_argument("--only", metavar="PATTERN", help="mutants of such names: '*mutmut_*3' is one in ten")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants of each folder named, drawn from all alike")
    parser.add_argument("--seed", default="", metavar="TEXT", help="another text draws another sample (default: empty)")
    parser.add_argument("--all", action="store_true", help="all modules")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin nothing new after so long (default: 60)")
    parser.add_argument("--children", type=int, default=2, help="mutants at the same time (default: 2)")
    parser.add_argument("--few", action="store_true", help="the fast tests alone: few examples, nothing thorough")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--quiet", action="store_true", help="scores alone, no diffs")
    asked = parser.parse_args()
    words = [*asked.modules, *(PACKAGES if asked.all else ())]
    chosen: dict[str, list[str]] = changed_since(asked.since) if asked.since else {}
    chosen |= {module: [asked.only] if asked.only else [] for module in modules_of(words)}
    if not chosen:
        print("no module to try: name one, or --since COMMIT, or --all", file=sys.stderr)
        return 0 if asked.since else 64
    deadline = time.monotonic() + 60 * asked.minutes
    scores = []
    if asked.sample:
        for folder in asked.modules:
            place = Workplace(folder, wide=True)
            if asked.fresh:
                shutil.rmtree(place.directory, ignore_errors=True)
            found = try_sample(place, asked.sample, asked.seed, deadline, asked.children, few=asked.few)
            for score in found:
                show(score, place, quiet=asked.quiet)
            scores += found
        chosen = {}
    for number, (module, only) in enumerate(chosen.items()):
        if asked.fresh:
            for wide in (False, True):
                shutil.rmtree(Workplace(module, wide).directory, ignore_errors=True)
        left = deadline - time.monotonic()
        # Of what is cut short each has its part, but none less than it takes to begin.
        mine = time.monotonic() + min(left, max(left / (len(chosen) - number), 40))
        score = try_module(module, mine, asked.children, only, few=asked.few) if left > 0 else score_of(module, only)
        scores.append(score)
        names_alone = asked.since and time.monotonic() >= deadline
        show(score, Workplace(module, wide=not Workplace(module).by_name), quiet=asked.quiet, names_alone=names_alone)
    totals(scores)
    return 1 if any(score.survivors or score.unfinished for score in scores) else 0


def show(score: Score, place: Workplace, *, quiet: bool, names_alone: bool = False) -> None:
    """Prints the score of a module and, as diffs, the mutants that survived."""
    print(score.text, flush=True)
    for name in () if quiet else score.survivors:
        print(name if names_alone else place.diff(name), end="\n\n", flush=True)


def totals(scores: Sequence[Score]) -> None:
    """Prints a line for each folder."""
    folders: dict[str, list[Score]] = {}
    for score in scores:
        folders.setdefault(Path(score.module).parent.as_posix(), []).append(score)
    print()
    for folder, inside in folders.items():
        whole = tuple(name for score in inside for name in score.survivors)
        begun = any(score.begun for score in inside)
        killed, waiting = sum(score.killed for score in inside), sum(score.open for score in inside)
        left_out = sum(score.left_out for score in inside)
        print(Score(folder, killed, whole, waiting, begun, left_out).text)


if __name__ == "__main__":
    sys.exit(main())
