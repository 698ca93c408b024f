"""Staging directories and claims: what a failure leaves, and what is told of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from jobs.rebuild import staging
from storeformat.errors import MissingInput, Refused, WriteFailed
from storeformat.storage import files
from udfs.files.output_files import OutputDirectory


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


def test_where_a_rebuild_works(tmp_path: Path) -> None:
    place = staging.Workplace.within(str(tmp_path), None)
    assert place == staging.Workplace(f"{tmp_path}/runs", f"{tmp_path}/drafts", f"{tmp_path}/made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drafts", "made", "runs"]
    elsewhere = staging.Workplace.within(str(tmp_path / "s"), str(tmp_path / "out"))
    assert (elsewhere.made, (tmp_path / "out").is_dir()) == (str(tmp_path / "out"), True)
    assert elsewhere.output == OutputDirectory(elsewhere.made, elsewhere.drafts)


@pytest.mark.parametrize("other", ["notes.txt", ".claim-0"])
def test_an_output_that_another_rebuild_fills(tmp_path: Path, other: str) -> None:
    (tmp_path / other).touch()
    with pytest.raises(Refused) as caught, staging.claimed(str(tmp_path)):
        raise AssertionError
    assert str(caught.value) == (f"the output directory is not empty: found {other}, expected nothing ({tmp_path})")
    assert caught.value.advice == (
        ".claim-0 belongs to a rebuild that is running or was killed: if none is running, remove the directory"
        if other == ".claim-0" else None
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == [other]


def test_a_claim_is_gone_afterwards(tmp_path: Path) -> None:
    with staging.claimed(str(tmp_path / "a")):
        (claim,) = (tmp_path / "a").iterdir()
        assert (claim.name[:7], len(claim.name), claim.read_bytes()) == (".claim-", 39, b"")
        (tmp_path / "a" / "made").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["made"]
    with pytest.raises(KeyboardInterrupt), staging.claimed(str(tmp_path / "b")):
        raise KeyboardInterrupt
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("output", "one_machine", "begin"),
    [
        ("/x/out", True, "/x/.out."),
        ("/x/out", False, "/x/.out."),
        ("s3://b/x/out", False, "s3://b/x/.out."),
        ("s3://b/x/out", True, "TEMPORARY/.rocketmq-store-spark-rebuild."),
    ],
)
def test_where_what_lives_no_longer_than_a_job_lies(
    monkeypatch: pytest.MonkeyPatch, output: str, one_machine: bool, begin: str
) -> None:
    made: list[str] = []
    monkeypatch.setattr(staging.outputs, "make_private_directory", made.append)
    monkeypatch.setattr(files, "remove_tree", made.append)
    monkeypatch.setattr(staging.outputs, "missing_parents", lambda path: [])
    monkeypatch.setattr(staging.session, "on_one_machine", lambda: one_machine)
    with staging.staging_for(output) as found:
        pass
    begin = begin.replace("TEMPORARY", tempfile.gettempdir())
    assert made == [found, found]
    assert found.startswith(begin)
    assert found.endswith(".staging")
    assert len(found) == len(begin) + 12 + len(".staging")
