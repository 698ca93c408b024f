"""What a rebuild will take on its disk, against what it takes, and the refusal where that is not free."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import golden
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder, Message

from jobs.rebuild.planning import refuse_if_too_large, size_note
from storeformat.errors import Refused
from storeformat.storage import local_status


def taken(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


@pytest.mark.golden
@pytest.mark.parametrize(
    "name", ["base-clean-5.3.3", "cq-default-size-5.3.3", "cq-ext-5.3.3", "batch-cq-5.3.3", "retention-5.1.4"]
)
def test_the_plan_is_what_the_files_take(name: str, tmp_path: Path) -> None:
    (store,) = golden.stores(name)
    built = rebuild_here(golden.unpack(store), tmp_path, store.settings)
    made = Path(built.directory)
    left = taken(made) - sum((made / name).stat().st_blocks * 512 for name in ("manifest.json", "checkpoint"))
    if not left:
        pytest.skip("this file system does not say what files take")
    assert left <= built.planned_bytes <= 2 * left + (1 << 20)


@pytest.mark.golden
def test_an_output_that_does_not_fit_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store)
    size = rebuild_here(root, tmp_path / "dry", store.settings, dry_run=True).planned_bytes
    monkeypatch.setattr(local_status, "free_space", lambda path: size - 1)
    with pytest.raises(Refused, match="does not fit") as caught:
        rebuild_here(root, tmp_path / "small", store.settings)
    assert caught.value.exit_code == 2
    assert "of log" in str(caught.value)
    assert not list((tmp_path / "small").rglob("consumequeue"))
    rebuild_here(root, tmp_path / "ignored", store.settings, ignore_free_space=True)
    monkeypatch.setattr(local_status, "free_space", lambda path: size)
    rebuild_here(root, tmp_path / "fits", store.settings)


@pytest.mark.parametrize(
    ("planned", "log", "noted"),
    [(600_000_000, 9_300, True), (1 << 20, 100, False), (5, 10, False), (2 << 20, 2 << 20, False)],
)
def test_an_output_larger_than_its_log_is_noted(planned: int, log: int, noted: bool) -> None:
    said = (
        "the output takes 600.0 MB, more than the 9.3 kB of log that it is made of: its queues begin at high offsets, "
        "or most of their messages are lost; units without a message fill the rest"
    )
    assert size_note(planned, log) == (said if noted else None)


@pytest.mark.parametrize(("free", "fits"), [(None, True), (5_000, True), (4_999, False)])
def test_what_is_free_is_enough(monkeypatch: pytest.MonkeyPatch, free: int | None, fits: bool) -> None:
    monkeypatch.setattr(local_status, "free_space", lambda path: free if path == "/out" else 0)
    if fits:
        refuse_if_too_large(5_000, "/out", 100)
        return
    with pytest.raises(Refused) as caught:
        refuse_if_too_large(5_000, "/out", 100)
    assert str(caught.value) == (
        "the output does not fit on its disk: found 5.0 kB free, expected 5.0 kB for 100 B of log (/out)"
    )
    assert caught.value.advice == (
        "name an --output with more room, rebuild fewer --topic, or go on with --ignore-free-space"
    )


def test_ten_kilobytes_of_log_cannot_fill_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred queues that begin with the last place of a file: each gets fillers in all of it."""
    log = LogBuilder(segment_size=1 << 16)
    for number in range(100):
        log.message(Message(f"T{number}", 0), queue_offset=299_999)
    log.write(tmp_path / "store")
    monkeypatch.setattr(local_status, "free_space", lambda path: 500_000_000)
    with pytest.raises(Refused, match=r"500\.0 MB free, expected 60[0-9].. MB for [0-9.]+ kB of log"):
        rebuild_here(tmp_path / "store", tmp_path / "work", {}, broker_version="5.5")
