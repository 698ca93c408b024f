"""Files of properties as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeformat.javaproperties import as_written, parse_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1\r\nb = 2\r\n\r\n", {"a": "1", "b": "2"}),
        ("a=1\rb=2", {"a": "1", "b": "2"}),
        ("  a\t=\t1  \n# c=3\n  ! d=4\n#e=5\\\nf=6", {"a": "1  ", "f": "6"}),
        ("a:1\nb 2\nc : 3\nd\n=4", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("delays=1s \\\n   5s \\\r\n10s\nb=2\\", {"delays": "1s 5s 10s", "b": "2"}),
        ("path=/a\\ b\nc\\=d=e=f\ng=h\\\\\ni=j", {"path": "/a b", "c=d": "e=f", "g": "h\\", "i": "j"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=\u2028\x0b1", {"a": "\u2028\x0b1"}),
    ],
)
def test_a_file_of_properties(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@given(st.text())
def test_a_value_is_read_as_it_was_written(text: str) -> None:
    assert parse_properties(f"name={as_written(text)}") == {"name": text}
