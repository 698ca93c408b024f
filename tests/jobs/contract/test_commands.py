"""What a person is to paste is what was meant, whatever names a store has."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.contract.commands import command, set_aside
from jobs.contract.report import is_printable, printable

HOSTILE = [
    "$(touch /tmp/x)",
    "`id`",
    "it's",
    '"',
    "a b",
    "-rf",
    "; rm -r /",
    "&",
    "*",
    "~root",
    "%RETRY%g",
    "\\",
    "",
    "#",
]
HIDDEN = ["\x1b[2J", "two\nlines", "\u202egnp", "\u200b", "\x00"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_a_name(name: str) -> None:
    assert shlex.split(command("mv", "--", f"/store/{name}", name)) == ["mv", "--", f"/store/{name}", name]


@pytest.mark.parametrize("name", HIDDEN)
def test_what_a_terminal_hides_is_in_no_command(name: str) -> None:
    said = command("rm", "--", name)
    assert said.startswith("by hand, for a name has characters that a terminal hides: rm -- ")
    assert printable(said) == said


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_words(words: list[str]) -> None:
    said = command("echo", *words)
    assert shlex.split(said) == ["echo", *words] if all(map(is_printable, words)) else said.startswith("by hand")
    assert is_printable(said)


def test_files_of_one_name_are_all_kept(tmp_path: Path) -> None:
    """Each queue has a file 00000000000000000000."""
    paths = []
    for queue in ("0", "1 $(exit 1)"):
        paths.append(tmp_path / "store" / queue / "00")
        paths[-1].parent.mkdir(parents=True)
        paths[-1].write_text(queue)
        subprocess.run(["sh", "-ec", set_aside(str(tmp_path), [str(paths[-1])])], check=True)
    assert sorted(path.read_text() for path in tmp_path.glob("00*")) == ["0", "1 $(exit 1)"]
    assert not any(path.exists() for path in paths)
