"""Staging directories and claims: what a failure leaves, and what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.rebuild import staging
from storeformat.errors import MissingInput, WriteFailed
from storeformat.storage import files


@pytest.mark.parametrize("context", [staging.claimed, staging.staging_beside])
def test_what_failed_first_is_told(context: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses a read often refuses the removal that follows."""

    def refused(path: str) -> None:
        raise WriteFailed("cannot be removed", path=path)

    monkeypatch.setattr(files, "remove_tree", refused)
    with pytest.raises(MissingInput, match="HTTP 416"), context(str(tmp_path / "out")):  # type: ignore[operator]
        raise MissingInput("HTTP 416")


def test_a_staging_directory_that_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise WriteFailed("cannot be removed", path=path)

    monkeypatch.setattr(files, "remove_tree", refused)
    with pytest.raises(WriteFailed, match="cannot be removed"), staging.staging_beside(str(tmp_path / "out")):
        pass


def test_nothing_is_left_of_a_staging_directory_and_its_parents(tmp_path: Path) -> None:
    with staging.staging_beside(str(tmp_path / "new" / "parents" / "out")) as made:
        Path(made, "file").touch()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), staging.staging_beside(str(tmp_path / "new" / "out")):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
