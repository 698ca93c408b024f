"""URI and options of a table for delta-rs; keys and other settings come from the environment or a profile.

==========  ==========================================================================================================
local       a version of the table is a new file of Delta's log, made by a link: of two that make it one fails
S3          ``If-None-Match: *``: the server stores an object only if it does not exist (AWS since 2024, MinIO and Ceph
            for longer); a server that ignores the header loses one of two loads at once
GCS, Azure  the same, by conditions of their own
HDFS        a rename that does not replace
==========  ==========================================================================================================
"""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote

from storeformat.errors import UsageError
from storeformat.storage import locations

_OPTION_OF_SETTING = {"endpoint_override": "aws_endpoint_url", "region": "aws_region"}


def place_of(path: str) -> tuple[str, dict[str, str]]:
    """URI and options for delta-rs; UsageError for a local path that delta-rs would decode."""
    if locations.is_local(path):
        if escape := re.search("%[0-9A-Fa-f]{2}", locations.local_path(path)):
            raise UsageError(
                f"delta-rs takes {escape[0]} in the path of a table for another character: {path}",
                advice="give the directory another name",
            )
        return locations.local_path(path), {}
    plain, settings = locations.split_settings(path)
    scheme, _, rest = plain.partition("://")
    given = dict(parse_qsl(settings.removeprefix("?")))
    who, _, rest = rest.rpartition("@")
    if scheme in ("s3", "s3a"):
        return f"s3://{rest}", _options_of_s3(who, given)
    if scheme.startswith("abfs"):
        return _azure(who, rest, given)
    return f"{scheme}://{rest}", {"google_skip_signature": "true"} if scheme == "gs" and who == "anonymous" else {}


def _options_of_s3(who: str, given: dict[str, str]) -> dict[str, str]:
    options = {option: given[name] for name, option in _OPTION_OF_SETTING.items() if name in given}
    if "aws_endpoint_url" in options and "://" not in options["aws_endpoint_url"]:
        options["aws_endpoint_url"] = f"{given.get('scheme', 'https')}://{options['aws_endpoint_url']}"
    if who:
        key_id, _, secret = who.partition(":")
        options |= {"aws_access_key_id": unquote(key_id), "aws_secret_access_key": unquote(secret)}
    return {**options, "aws_allow_http": "true", "aws_conditional_put": "etag"}


def _azure(who: str, rest: str, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    """For ``abfs://CONTAINER@ACCOUNT.dfs...`` and ``abfs://ACCOUNT@HOST:PORT/CONTAINER``."""
    host, _, key = rest.partition("/")
    name, _, password = who.partition(":")
    options = {"azure_storage_account_key": unquote(password)} if password else {}
    if secret := os.environ.get("AZURE_STORAGE_KEY"):
        options["azure_storage_account_key"] = secret
    if host.endswith((".dfs.core.windows.net", ".blob.core.windows.net")):
        return f"az://{name}/{key}", {**options, "azure_storage_account_name": host.partition(".")[0]}
    scheme = "http" if given.get("enable_tls") == "false" else "https"
    endpoint = {"azure_storage_endpoint": f"{scheme}://{host}/{name}", "allow_http": str(scheme == "http").lower()}
    return f"az://{key}", {**options, **endpoint, "azure_storage_account_name": name}
