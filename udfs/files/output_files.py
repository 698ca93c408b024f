"""How a task makes a file: write a draft, read it back, and only then give it its name.

What the driver gets to know of a file (SHA-256, how far it holds data, how many units) comes from the bytes on storage,
not from what was meant to be there. A task that is run again because its machine was lost, or whose twin still runs,
puts the same bytes under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from storeformat.queues.consume_queue import Piece
from storeformat.storage import files, locations, outputs
from storeformat.storage.extents import Content, read_back_whole
from udfs.files.file_rows import FileRow


@dataclass(frozen=True)
class Totals:
    """What the bytes of a file hold: units or entries, the sum of their commit-log offsets modulo 2**64, and the time
    of last change (milliseconds) that the file is to have, None where that does not matter.
    """

    count: int = 0
    offset_sum: int = 0
    modified: int | None = None


@dataclass(frozen=True)
class OutputDirectory:
    """Where files are made: their paths are below ``root``, until they are whole they lie in ``drafts``. ``compact``
    ones end where their data ends.
    """

    root: str
    drafts: str
    compact: bool = False

    def stored_size(self, data_size: int, size: int) -> int:
        """Returns the length on storage of a file of ``size`` bytes that holds data up to ``data_size``."""
        return data_size if self.compact else size

    def make(
        self,
        path: str,
        write: Callable[[files.FileWriter], None],
        read_back: Callable[[str], tuple[Content, Totals]],
    ) -> FileRow:
        """Returns the row of a file that ``write`` writes and ``read_back`` checks, given the path of the draft."""
        target = locations.join(self.root, path)
        draft = outputs.draft_of(target, self.drafts)
        with files.FileWriter(draft) as writer:
            write(writer)
        content, tally = read_back(draft)
        if tally.modified is not None:
            files.set_modified(draft, tally.modified)
        outputs.settle(draft, target)
        return FileRow(path, content, tally.count, tally.offset_sum)

    def make_of(
        self, path: str, pieces: Iterable[Piece], size: int | None, tally: Callable[[memoryview], Totals], *, what: str
    ) -> FileRow:
        """Returns the row of a file of ``size`` bytes that begins with these pieces (None: that is all of it).

        ``tally`` gets the bytes of the pieces as they were read back. Raises TotalsDisagree where the file holds
        anything else.
        """
        used = 0

        def write(writer: files.FileWriter) -> None:
            nonlocal used
            for piece in pieces:
                writer.write(piece)
                used += len(piece)
            writer.finish(used if size is None else self.stored_size(used, size))

        def read_back(draft: str) -> tuple[Content, Totals]:
            whole, named = used if size is None else size, locations.join(self.root, path)
            stored, content = read_back_whole(draft, used, self.stored_size(used, whole), path=named, what=what)
            return replace(content, size=whole), tally(stored)

        return self.make(path, write, read_back)
