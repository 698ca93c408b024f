"""The rules on small stores with something wrong: each answer is exactly that of its row."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.start_cases import ROWS, Row, case_of

from storeformat.storage import local_status

EACH = [pytest.param(row, release, id=f"{row.name}-{release}") for row in ROWS for release in row.releases.split()]


@pytest.mark.parametrize(("row", "release"), EACH)
def test_what_is_said(row: Row, release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if row.disk is not None:
        monkeypatch.setattr(local_status, "space_of", lambda path: row.disk)
    answer = row.damage(row.made(tmp_path / "store", release)).answer()
    left = list(answer.reasons)
    for said in row.said:
        fitting = [reason for reason in left if said.fits(reason)]
        assert fitting, (said, [(case_of(reason), reason.unsafe, reason.values) for reason in left])
        left.remove(fitting[0])
    assert not left, [(case_of(reason), reason.unsafe, reason.values) for reason in left]
    assert answer.safe is not any(said.unsafe for said in row.said)
