"""The golden stores are all there, and a comparison sees what differs."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from support import golden
from support.golden_differences import PRE_BLANK, Difference, index_differences, queue_differences

pytestmark = pytest.mark.golden
ALL = golden.stores()


def damage(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_filters() -> None:
    assert len(ALL) == 58
    assert {store.scenario for store in golden.stores("plain")}.isdisjoint({"batch-cq", "lmq", "cq-ext"})
    assert len(golden.stores("plain")) == 50
    assert [store.name for store in golden.stores("sizes")] == ["sizes-4.6.1", "sizes-5.1.4", "sizes-5.5.0"]
    assert [store.version for store in golden.stores("lag-killed-safe-5.3.3")] == ["5.3.3"]
    assert all(store.version_tuple >= (5, 4) for store in golden.stores(lambda store: store.version >= "5.4"))
    with pytest.raises(KeyError, match="no golden store"):
        golden.stores("nothing-of-the-kind")


def test_a_wrong_unit_is_named_and_decoded(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    actual = golden.unpack(store, tmp_path)
    file = "consumequeue/TopicPay/0/00000000000000000000"
    unit = (actual / file).read_bytes()[60:80]
    phy_offset, size, tags_code = struct.unpack(">qiq", unit)
    damage(actual / file, 68, struct.pack(">i", size + 1))
    damage(actual / file, 200, bytes(20))
    (difference,) = queue_differences(golden.unpack(store), actual, store)
    one, other = (f"phy_offset={phy_offset}, size={said}, tags_code={tags_code}" for said in (size, size + 1))
    assert difference == Difference(file, "unit 3", one, other)
    assert "expected phy_offset" in str(difference)


def test_missing_extra_and_short_files_are_named(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    actual = golden.unpack(store, tmp_path)
    queue = actual / "consumequeue" / "TopicPay"
    (queue / "0" / "00000000000000000000").unlink()
    shutil.copytree(queue / "1", queue / "9")
    (queue / "1" / "00000000000000000000").write_bytes(b"short")
    found = {(d.file, d.unit, d.found) for d in queue_differences(golden.unpack(store), actual, store)}
    assert found == {
        ("consumequeue/TopicPay/0/00000000000000000000", "file", "no such file"),
        ("consumequeue/TopicPay/9/00000000000000000000", "file", "1000 bytes"),
        ("consumequeue/TopicPay/1/00000000000000000000", "length", "5"),
    }


@pytest.mark.parametrize(
    ("position", "unit", "found"),
    [(32, "header hash_slot_count", "1"), (40 + 4 * 100 + 20 * 7 + 12, "entry 7", None), (40 + 4 * 3, "slot 3", "1")],
)
def test_a_wrong_index_file_is_named(tmp_path: Path, position: int, unit: str, found: str | None) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    actual = golden.unpack(store, tmp_path)
    second = sorted((actual / "index").iterdir())[1]
    before = struct.unpack_from(">i", second.read_bytes(), position)[0]
    damage(second, position, struct.pack(">i", 1))
    (difference,) = index_differences(golden.unpack(store), actual, store)
    assert difference.unit == unit
    assert "index file 1" in difference.file
    if found is not None:
        assert (difference.found, difference.expected) == (found, str(before))


def test_names_of_index_files_do_not_matter_but_their_order_does(tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    actual = golden.unpack(store, tmp_path)
    files = sorted((actual / "index").iterdir())
    for number, path in enumerate(files):
        path.rename(path.with_name(f"{number:017d}"))
    assert index_differences(golden.unpack(store), actual, store) == []
    (actual / "index" / f"{0:017d}").rename(actual / "index" / f"{99:017d}")
    assert index_differences(golden.unpack(store), actual, store)


def test_after_a_kill_only_the_count_of_an_empty_last_index_file_is_tolerated(tmp_path: Path) -> None:
    def is_empty_last(store: golden.GoldenStore) -> bool:
        last = sorted((golden.unpack(store) / "index").iterdir())[-1].read_bytes()
        return store.killed and not any(last[36:])

    for store in golden.stores(is_empty_last):
        actual = golden.unpack(store, tmp_path)
        last = sorted((actual / "index").iterdir())[-1]
        damage(last, 36, struct.pack(">i", 1))
        assert index_differences(golden.unpack(store), actual, store) == []
        damage(last, 36, struct.pack(">i", 2))
        assert index_differences(golden.unpack(store), actual, store) != []


def test_from_min_ignores_what_lies_below_the_log_and_nothing_above(tmp_path: Path) -> None:
    (store,) = golden.stores("retention-5.1.4")
    actual = golden.unpack(store, tmp_path)
    path = actual / "consumequeue/TopicOrder/0/00000000000000000000"
    offsets = [offset for offset, _, _ in struct.iter_unpack(">qiq", path.read_bytes())]
    assert offsets[0] < store.min_offset
    damage(path, 0, PRE_BLANK)
    assert queue_differences(golden.unpack(store), actual, store) == []
    first = next(number for number, offset in enumerate(offsets) if offset >= store.min_offset)
    damage(path, 20 * first, PRE_BLANK)
    (difference,) = queue_differences(golden.unpack(store), actual, store)
    assert (difference.unit, difference.found) == (f"unit {first}", "pre-blank")


def test_to_end_misses_no_unit_of_a_record_in_the_log(tmp_path: Path) -> None:
    (store,) = golden.stores("stale-mid-5.1.4")
    expected, actual = golden.unpack(store), golden.unpack(store, tmp_path)
    records = golden.chain(expected, store)
    assert max(records) + records[max(records)] == store.end_offset
    for path in sorted((actual / "consumequeue").rglob("0*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        kept = [u for u in struct.iter_unpack(">qiq", data) if records.get(u[0]) == u[1]]
        path.write_bytes(b"".join(struct.pack(">qiq", *u) for u in kept).ljust(len(data), b"\0"))
    assert queue_differences(expected, actual, store) == []
    path = actual / "consumequeue/TopicPay/1/00000000000000000000"
    data = path.read_bytes()
    last = max(n for n, unit in enumerate(struct.iter_unpack(">qiq", data)) if any(unit))
    damage(path, 20 * last, bytes(20))
    (difference,) = queue_differences(expected, actual, store)
    assert (difference.unit, difference.found) == (f"unit {last}", "unwritten")
