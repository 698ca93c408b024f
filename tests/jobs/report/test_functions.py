"""How a file of SQL is taken apart."""

from __future__ import annotations

from jobs.report.functions import statements


def test_statements_end_with_a_semicolon_at_a_lines_end() -> None:
    text = "-- a comment; of one line\nSELECT 1;\n\nSELECT ';', 2 -- two\n  FROM t;\nSELECT 3"
    found = statements(text)
    assert [part.split()[0] for part in found] == ["SELECT"] * 3
    assert found[0] == "SELECT 1"
    assert found[1].startswith("SELECT ';', 2")
    assert found[1].endswith("FROM t")
    assert found[2] == "SELECT 3"
