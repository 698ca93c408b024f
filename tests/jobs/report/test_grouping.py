"""Groups, medians, places in an order, numbers out of texts, hashes: each against a slow count or by hand."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pyarrow as pa
import pytest

from jobs.report import grouping


def test_groups_with_their_sums_and_medians() -> None:
    chance = random.Random(3)
    rows = [
        {"a": chance.choice(["x", "y", None]), "b": chance.choice([1, 2, None]), "n": chance.choice([None, 3, 8, 10])}
        for _ in range(200)
    ]
    found = grouping.summed(
        pa.Table.from_pylist(rows), ["a", "b"], rows=(None, "count_all"), most=("n", "max"), middle=("n", "median")
    ).to_pylist()
    assert len(found) == len({(row["a"], row["b"]) for row in rows}) == 9
    for group in found:
        mine = [row["n"] for row in rows if (row["a"], row["b"]) == (group["a"], group["b"])]
        given = [number for number in mine if number is not None]
        assert (group["rows"], group["most"], group["middle"]) == (len(mine), max(given), statistics.median(given))


def test_the_least_text_of_a_group_and_a_group_without_numbers() -> None:
    rows = pa.table({"k": [1, 1, 2], "text": ["b", "B", None], "n": pa.array([None, None, 4], pa.int32())})
    found = grouping.summed(rows, ["k"], least=("text", "min"), middle=("n", "median"))
    assert found.to_pylist() == [{"k": 1, "least": "B", "middle": None}, {"k": 2, "least": None, "middle": 4.0}]
    assert len(grouping.summed(rows.slice(0, 0), ["k"], least=("text", "min"), middle=("n", "median"))) == 0


def test_the_place_of_each_row_in_its_group() -> None:
    groups, first, then = np.array([7, 2, 7, 7, 2]), np.array([1, 5, 1, 0, 4]), np.array([9, 0, 8, 3, 0])
    assert grouping.turns(groups, first, then).tolist() == [2, 1, 1, 0, 0]


def test_the_order_of_sql() -> None:
    rows = pa.table({"n": [1, None, 2, 2], "t": ["a", "b", "é", None]})
    assert grouping.in_order(rows, "-n", "t")["t"].to_pylist() == [None, "é", "a", "b"]
    assert grouping.in_order(rows, "n", "-t", most=3)["t"].to_pylist() == ["b", "a", "é"]


@pytest.mark.parametrize(
    ("text", "bits", "number"),
    [
        ("12", 64, 12),
        (" +7\t", 64, 7),
        ("-0", 64, 0),
        ("1.5", 64, None),
        ("1e9", 64, None),
        ("", 64, None),
        ("-", 64, None),
        ("１", 64, None),
        ("9223372036854775807", 64, (1 << 63) - 1),
        ("9223372036854775808", 64, None),
        ("-2147483648", 32, -(1 << 31)),
        ("2147483648", 32, None),
        (None, 64, None),
    ],
)
def test_a_text_as_a_number(text: str | None, bits: int, number: int | None) -> None:
    assert grouping.whole_number(text, bits) == number


def test_equal_texts_have_equal_hashes_and_others_do_not() -> None:
    texts = ["", "a", "b", "a\0", "12345678", "123456789", "12345678" * 4, "12345678" * 4 + "x", "é"]
    twice = pa.array(["not seen", *texts, *texts])[1:]
    hashes = grouping.text_hashes(twice, np.full(len(twice), 5, np.uint64))
    assert hashes[: len(texts)].tolist() == hashes[len(texts) :].tolist()
    assert len(set(hashes.tolist())) == len(texts)
    assert grouping.text_hashes(twice, np.full(len(twice), 6, np.uint64))[1] != hashes[1]
    assert len(grouping.text_hashes(pa.array([], pa.string()), np.zeros(0, np.uint64))) == 0
