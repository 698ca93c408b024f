"""Work directories of a rebuild: staging beside the output, and a claim on an object store."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

from jobs.spark import session
from storeformat.errors import Refused, StoreFormatError
from storeformat.storage import files, locations, outputs
from udfs.files.output_files import OutputDirectory

CLAIM = ".claim-"


@dataclass(frozen=True)
class Workplace:
    """Directories for runs, for unchecked files and for checked ones."""

    runs: str
    drafts: str
    made: str

    @property
    def output(self) -> OutputDirectory:
        return OutputDirectory(self.made, self.drafts)

    @staticmethod
    def within(staging: str, made: str | None) -> Workplace:
        """Create the directories in ``staging``; checked files go to ``made`` if given."""
        names = (
            locations.join(staging, "runs"),
            locations.join(staging, "drafts"),
            made or locations.join(staging, "made"),
        )
        for directory in names:
            files.make_directory(directory)
        return Workplace(*names)


@contextmanager
def gone_on_failure(directory: str, parents: Sequence[str] = ()) -> Iterator[None]:
    """Remove the directory and its empty ``parents`` if the body fails; it was absent or empty before."""
    try:
        yield
    except BaseException:
        with suppress(StoreFormatError):  # what went wrong first is what counts
            files.remove_tree(directory)
            outputs.remove_empty(parents)
        raise


@contextmanager
def claimed(output: str) -> Iterator[None]:
    """Claim an output on an object store; Refused if anything else is there, and a failure removes it. Of two rebuilds
    that write a claim and then list, one at least sees the other. A killed rebuild's claim blocks the place.
    """
    claim = locations.join(output, CLAIM + uuid.uuid4().hex)
    files.write_bytes(claim, b"")
    others = sorted(files.tree_sizes(output).keys() - {locations.name_of(claim)})
    if others:
        files.remove_object(claim)
        advice = (
            f"{others[0]} belongs to a rebuild that is running or was killed: if none is running, remove the directory"
        )
        raise Refused(
            "the output directory is not empty", path=output, found=others[0], expected="nothing",
            advice=advice if others[0].startswith(CLAIM) else None,
        )  # fmt: skip
    with gone_on_failure(output):
        yield
        files.remove_object(claim)


def staging_for(output: str) -> AbstractContextManager[str]:
    """Staging beside the output; for an object store with local tasks, in the temporary directory."""
    if not locations.is_local(output) and session.on_one_machine():
        return staging_beside(locations.join(tempfile.gettempdir(), "rocketmq-store-spark-rebuild"))
    return staging_beside(output)


@contextmanager
def staging_beside(output: str) -> Iterator[str]:
    """Yield a new private directory beside the output; it and new empty parents are removed at the end."""
    staging = locations.join(
        locations.parent_of(output), f".{locations.name_of(output)}.{uuid.uuid4().hex[:12]}.staging"
    )
    made = outputs.missing_parents(staging)
    with gone_on_failure(staging, made):
        outputs.make_private_directory(staging)
        yield staging
    files.remove_tree(staging)
    outputs.remove_empty(made)
