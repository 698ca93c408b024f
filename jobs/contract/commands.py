"""Commands that a person is to paste: each made of its words, so that no name in a store can be more than a name.

Names come from the store: a topic, a group, a directory may hold a quote, a blank, ``$(...)``, or begin with a dash. A
name with what a terminal hides or obeys is in no command: pasted, it would be another.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from jobs.contract.report import is_printable, printable


def command(*words: str) -> str:
    """Returns the line for a shell that runs a program with these words; where a word cannot be shown as it is, says
    that in place of a line.
    """
    line = shlex.join(words)
    if all(map(is_printable, words)):
        return line
    return f"by hand, for a name has characters that a terminal hides: {printable(' '.join(words))}"


def quoted(name: str) -> str:
    """Returns a name as one word, for an instruction that is no command."""
    return shlex.quote(printable(name))


def set_aside(directory: str, paths: Sequence[str]) -> str:
    """Returns the command that moves files or directories into a directory, whatever is there under their names."""
    return command("mv", "--backup=numbered", "-t", directory, "--", *paths)
