"""A public function names what it raises itself: whoever calls it needs not read it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("storeformat", "udfs", "jobs")


def is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def functions(body: list[ast.stmt], inside: str = "") -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """The public functions and methods: name, definition, docstring; that of a class also serves its own methods."""
    for node in body:
        if isinstance(node, ast.ClassDef) and is_public(node.name):
            of_class = ast.get_docstring(node) or ""
            for name, function, text in functions(node.body, f"{inside}{node.name}."):
                yield name, function, f"{of_class} {text}" if function.name.startswith("__") else text
        elif isinstance(node, ast.FunctionDef) and is_public(node.name):
            yield inside + node.name, node, ast.get_docstring(node) or ""


def raised(node: ast.AST) -> set[str]:
    """The classes that are raised by name in a function, those inside it left out."""
    found = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(child, ast.Raise) and child.exc is not None:
            error = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            name = error.attr if isinstance(error, ast.Attribute) else getattr(error, "id", "")
            found |= {name} if name[:1].isupper() else set()
        found |= raised(child)
    return found


def unnamed(source: str) -> list[str]:
    """Each public function with what it raises and its docstring does not name."""
    lines = []
    for name, function, text in functions(ast.parse(source).body):
        missing = sorted(raised(function) - set(re.findall(r"\w+", text)))
        if missing:
            lines.append(f"{function.lineno} {name}: {', '.join(missing)}")
    return lines


@pytest.mark.parametrize("package", PACKAGES)
def test_a_public_docstring_names_what_is_raised(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in unnamed(path.read_text(encoding="utf-8"))
    ]
    assert not found, "name what is raised, and when, in the docstring:\n" + "\n".join(found)


def test_what_is_raised_is_found() -> None:
    source = '''
class Reader:
    """Raises Named if there is no file."""

    def __init__(self):
        raise Named

    def __call__(self):
        raise Other("text") from None

    def read(self):
        """Returns bytes, and more than Named or NamedAlike."""
        with self:
            if self:
                raise errors.Missing(path=1)
            raise Name

class _Private:
    def read(self):
        raise Missing

def _private():
    raise Missing

def outer():
    try:
        raise error
    except OSError:
        raise

    def inner():
        raise Missing

def bare():
    for _ in ():
        raise Second
    raise First
'''
    assert unnamed(source) == ["8 Reader.__call__: Other", "11 Reader.read: Missing, Name", "34 bare: First, Second"]
