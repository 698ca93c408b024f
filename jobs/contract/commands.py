"""Shell commands to paste, quoted word by word; names with characters that a terminal hides or obeys are in none."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from jobs.contract.report import is_printable, printable


def command(*words: str) -> str:
    """Shell line for these words, or a remark if a word is not printable."""
    line = shlex.join(words)
    if all(map(is_printable, words)):
        return line
    return f"by hand, for a name has characters that a terminal hides: {printable(' '.join(words))}"


def quoted(name: str) -> str:
    """A name as one shell word, for text that is not a command."""
    return shlex.quote(printable(name))


def set_aside(directory: str, paths: Sequence[str]) -> str:
    """Command that moves paths into a directory without overwriting."""
    return command("mv", "--backup=numbered", "-t", directory, "--", *paths)
