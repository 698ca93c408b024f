"""Where a rebuild works before its output is there: a staging directory beside it, a claim on an object store."""

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
    """Where a rebuild works: directories for runs, for files that are not checked yet, and for those that are."""

    runs: str
    drafts: str
    made: str

    @property
    def output(self) -> OutputDirectory:
        """Where tasks make files."""
        return OutputDirectory(self.made, self.drafts)

    @staticmethod
    def within(staging: str, made: str | None) -> Workplace:
        """Returns the place in a staging directory, its directories made; checked files go to ``made`` where given."""
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
    """Within it a directory is filled, which was absent or empty before: if that fails, it is gone afterwards, and so
    are those of its parents in which nothing else is.
    """
    try:
        yield
    except BaseException:
        with suppress(StoreFormatError):  # what went wrong first is what counts
            files.remove_tree(directory)
            outputs.remove_empty(parents)
        raise


@contextmanager
def claimed(output: str) -> Iterator[None]:
    """Within it this rebuild alone fills an output on an object store; if it fails, the output is gone afterwards.
    Raises Refused if anything else is there.

    Object stores list what was written, so of two rebuilds that each write a claim and look around afterwards, one at
    least sees the other. One that was killed leaves its claim and no manifest: no output, and no place for another.
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
    """Returns a context with a new directory for what lives no longer than the job: beside the output, or, where that
    is not a file system but all tasks run on this machine, in its directory for temporary files.
    """
    if not locations.is_local(output) and session.on_one_machine():
        return staging_beside(locations.join(tempfile.gettempdir(), "rocketmq-store-spark-rebuild"))
    return staging_beside(output)


@contextmanager
def staging_beside(output: str) -> Iterator[str]:
    """Yields a new directory beside the output, which nobody else may enter: what lies in it becomes the output with
    the permissions of the umask. Removes it, whatever happens; its parents, too, if they had to be made and nothing
    else came there.
    """
    staging = locations.join(
        locations.parent_of(output), f".{locations.name_of(output)}.{uuid.uuid4().hex[:12]}.staging"
    )
    made = outputs.missing_parents(staging)
    with gone_on_failure(staging, made):
        outputs.make_private_directory(staging)
        yield staging
    files.remove_tree(staging)
    outputs.remove_empty(made)
