"""``spark-submit.sh --bundle FILE``: all that the set-up fetches, in one archive for machines without a network.

=====================  =======================================================================================
in the archive         what
=====================  =======================================================================================
``bundle.json``        which Python and machine it is for; name and SHA-256 of each file
``wheels/``            every package of the environment as it was published: wheels, and the source of pyspark
``jars/``              Delta's jars
=====================  =======================================================================================

``spark-submit.sh --setup --from FILE`` sets up from it. The wheels are of the Python that writes the archive, so the
other machine needs one of the same version. Its sums tell of damage on the way; against an attacker stand the hashes in
``conf/``, which the set-up there looks at, too. Standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from jobs.setup import delta_jars
from jobs.setup.setup_steps import SetupError, StepProgress
from storeformat.storage import local_files

ABOUT = "bundle.json"
PARTS = ("wheels", "jars")
_SHOWN = "Python {python} on {system} {machine}"
_MOST_BYTES, _MOST_FILES, _MOST_ABOUT = 2 << 30, 10_000, 16 << 20
"""More than any bundle has: some 600 MB in some 50 files."""
_NOT_OURS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""What becomes of an archive in which something else stands than ``write`` puts there."""


def target() -> dict[str, str]:
    """Returns which machines take the wheels that this Python gets."""
    return {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "system": platform.system(),
        "machine": platform.machine(),
    }


class NotPublished(SetupError):
    """pip met a file whose hash is not one of the published ones."""


def check_hashes(progress: StepProgress) -> None:
    """Raises NotPublished where the last pip that failed said so."""
    said = progress.log.read_text(encoding="utf-8").partition("DO NOT MATCH THE HASHES")[2]
    if found := re.search(r"^ +(\S.*):\n(?:.*\n)*? +Got +(\w+)", said, re.MULTILINE):
        raise NotPublished(
            f"a package is not the published one: {found[1]} has SHA-256 {found[2]} (see {progress.log})",
            "it was changed on its way, or built again: check where it came from",
        )


def write(file: Path, venv: Path, requirements: str) -> None:
    """Writes the archive, whole or not at all; raises SetupError where a package cannot be had."""
    if not (venv / "jars").is_dir():
        raise SetupError("Delta's jars are not there", f"install Maven, or name a directory in {delta_jars.JARS}")
    delta_jars.check(venv / "jars")
    with tempfile.TemporaryDirectory(prefix="bundle.", dir=venv) as scratch:
        work = Path(scratch)
        _wheels(venv, work, requirements)
        shutil.copytree(venv / "jars", work / "jars")
        files = [path for part in PARTS for path in sorted((work / part).iterdir())]
        sums = {f"{path.parent.name}/{path.name}": delta_jars.sha256_of(path) for path in files}
        (work / ABOUT).write_text(json.dumps({**target(), "files": sums}, indent=1), encoding="utf-8")
        with local_files.replacing(str(file)) as whole, tarfile.open(fileobj=whole, mode="w") as archive:
            for path in (work / ABOUT, *files):
                archive.add(str(path), path.relative_to(work).as_posix())


def _wheels(venv: Path, work: Path, requirements: str) -> None:
    progress = StepProgress(venv / "setup-bundle.log")
    progress.log.unlink(missing_ok=True)
    (work / "requirements.txt").write_text(requirements, encoding="utf-8")
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    # The source of pyspark is asked for its name; what builds it is here.
    pip += ["--no-deps", "--no-build-isolation", "--use-pep517", "--require-hashes", "--dest", str(work / "wheels")]
    if not progress.run([*pip, "-r", str(work / "requirements.txt")]):
        check_hashes(progress)
        reason = progress.errors("ERROR").removeprefix("ERROR:").strip() or "pip failed"
        raise SetupError(f"the packages could not be fetched: {reason}", f"pip's output: {progress.log}")


@contextlib.contextmanager
def unpacked(file: Path | None, venv: Path) -> Iterator[Path | None]:
    """Yields a directory with ``wheels/`` and ``jars/`` of an archive, each file checked; None for no archive. Raises
    SetupError if the archive is not what ``--bundle`` writes.
    """
    if file is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bundle.", dir=venv) as scratch:
        try:
            _refuse_large(file)
            with tarfile.open(file, "r:") as archive:
                _unpack(archive, Path(scratch), file)
        except (tarfile.TarError, *_NOT_OURS) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise SetupError(f"{file} is not what --bundle writes: {why}") from error
        yield Path(scratch)


def _refuse_large(file: Path) -> None:
    if file.stat().st_size > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 30} GiB")


def _entries(archive: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """Returns the files of an archive; raises ValueError for more than any bundle has, and for links and holes, which
    grow when they are unpacked.
    """
    found = dict[str, tarfile.TarInfo]()
    for entry in archive:
        if not entry.isreg() or entry.issparse():
            raise ValueError(f"{entry.name!r} is not a file of its own")
        if entry.name in found or len(found) == _MOST_FILES:
            raise ValueError(f"a file comes twice, or there are more than {_MOST_FILES:,}")
        found[entry.name] = entry
    if found[ABOUT].size > _MOST_ABOUT:
        raise ValueError(f"{ABOUT} is too large")
    return found


def _unpack(archive: tarfile.TarFile, directory: Path, file: Path) -> None:
    entries = _entries(archive)
    described: dict[str, Any] = json.loads(_opened(archive, entries[ABOUT]).read())
    here = target()
    there = {name: re.fullmatch(r"[\w.-]{1,99}", described[name])[0] for name in here}  # type: ignore[index]
    if there != here:
        raise SetupError(
            f"the bundle is for {_SHOWN.format(**there)}, this is {_SHOWN.format(**here)}",
            "name a Python of that version in ROCKETMQ_STORE_SPARK_PYTHON, or make the bundle with this one",
        )
    for part in PARTS:
        (directory / part).mkdir()
    for name, expected in described["files"].items():
        part, _, base = name.partition("/")
        if part not in PARTS or base in ("", ".", "..") or "/" in base or "\\" in base:
            raise SetupError(f"{file} holds {name!r}, which does not belong in a bundle")
        with _opened(archive, entries[name]) as source, (directory / part / base).open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        if (found := delta_jars.sha256_of(directory / part / base)) != expected:
            raise SetupError(f"{file}: {name!r} is damaged: SHA-256 found {found}, expected {expected!r}")


def _opened(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    opened = archive.extractfile(entry)
    assert opened is not None, "a regular file"
    return opened
