"""Tables on S3, as delta-rs reads and commits to them: without a JVM, and with no commit lost.

A version of a table is a new object of Delta's log. ``If-None-Match: *`` makes the server take it only where there is
none yet: so of two loads that commit the same version at once one fails, tries again, and sees what the other did. AWS
has had this since 2024, MinIO and Ceph for longer; a server that ignores the header takes both, and the rows of the
first are gone. So a server has to show that it refuses before anything is committed.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from threading import Barrier
from urllib.parse import parse_qsl, unquote

import deltalake
import pyarrow as pa
from deltalake import exceptions
from deltalake.transaction import CommitProperties

from storeformat.errors import Refused, StoreFormatError
from storeformat.storage import files, locations

_SCHEMES = ("s3://", "s3a://")
_OPTION_OF_SETTING = {"endpoint_override": "aws_endpoint_url", "region": "aws_region"}
_TRIALS = 3
_EMPTY = pa.schema([("nothing", pa.int8())])


def on_s3(path: str) -> bool:
    """Returns whether a path is one of S3."""
    return path.startswith(_SCHEMES)


def place_of(path: str) -> tuple[str, dict[str, str]]:
    """Returns the URI and the options by which delta-rs knows a path of S3. What the path does not say, such as keys,
    is in the environment or a profile, as elsewhere.
    """
    plain, settings = locations.split_settings(path)
    bucket, slash, key = plain.partition("://")[2].partition("/")
    who, _, bucket = bucket.rpartition("@")
    given = dict(parse_qsl(settings.removeprefix("?")))
    options = {option: given[name] for name, option in _OPTION_OF_SETTING.items() if name in given}
    if "aws_endpoint_url" in options and "://" not in options["aws_endpoint_url"]:
        options["aws_endpoint_url"] = f"{given.get('scheme', 'https')}://{options['aws_endpoint_url']}"
    if who:
        key_id, _, secret = who.partition(":")
        options |= {"aws_access_key_id": unquote(key_id), "aws_secret_access_key": unquote(secret)}
    return f"s3://{bucket}{slash}{key}", {**options, "aws_allow_http": "true", "aws_conditional_put": "etag"}


def needs_delta(table: str, what: str) -> Refused:
    """Returns the refusal of what only Delta's own writer can do: on S3 that one commits without a condition."""
    return Refused(
        f"{what} needs Delta's own writer, and on S3 that one may lose what others commit at the same time", path=table,
        advice="let Spark do it while nobody loads (./spark-submit.sh --setup --with s3), or keep the table elsewhere",
    )  # fmt: skip


@lru_cache(maxsize=16)
def require_conditional_writes(table: str) -> None:
    """Raises Refused where the server of a table takes an object twice that must be new. It is asked once a process."""
    plain, settings = locations.split_settings(table)
    trial = f"{plain}.trial-{uuid.uuid4().hex}{settings}"
    try:
        apart = _keeps_apart(*place_of(trial))
    finally:
        with suppress(StoreFormatError):
            files.remove_tree(trial)
    if not apart:
        raise Refused(
            "this S3 server ignores If-None-Match and overwrites objects: of two loads at once one could be lost",
            path=table, advice="a server with conditional writes (If-None-Match) is needed, or a table elsewhere",
        )  # fmt: skip


def _keeps_apart(uri: str, options: dict[str, str]) -> bool:
    """Returns whether of two that commit a version at the same time one fails, each time, in a table for this alone.

    They have to meet between delta-rs' look at the log and its write, which is all that a commit is here.
    """

    def commit(table: deltalake.DeltaTable) -> bool:
        together.wait()
        try:
            table.create_write_transaction([], "append", table.schema(), commit_properties=once)
        except exceptions.CommitFailedError:
            return False
        return True

    once = CommitProperties(max_commit_retries=0)
    deltalake.DeltaTable.create(uri, _EMPTY, storage_options=options)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(_TRIALS):
            together = Barrier(2, timeout=60)
            both = [deltalake.DeltaTable(uri, storage_options=options) for _ in range(2)]
            if all(pool.map(commit, both)):
                return False
    return True
