"""Locations: local paths and URIs of files and directories. Opens nothing.

===========================  ==========================================================================================
``/a/b``, ``b``              local
``file:///a/b%20c``          local, the only URI whose escapes are decoded: topics are called ``%RETRY%...``
``s3://bucket/b?region=eu``  storage with settings after a ``?``, which every location made from it keeps
===========================  ==========================================================================================
"""

from __future__ import annotations

import os
import posixpath
import re
from itertools import accumulate
from urllib.parse import unquote

MASK = "***"
_NOT_NORMAL = re.compile(r"//|/\.|/$")
_USER_AND_PASSWORD = re.compile(
    r"(?<![a-z0-9+.-])([a-z0-9+.-]+://?)[^\s/?#@:]{0,1024}:(?!\d*(?:[/?#\s]|$))(?:[^\s@]{0,1024}@)(?:[^\s/?#@]{0,1024}@)*",
    re.I,
)
"""Part before the host; without a password (``abfs://container@account``) or with a port alone it is not secret."""
_SETTINGS = re.compile(r"(?<![a-z0-9+.-])([a-z0-9+.-]+://?[^\s?]{0,4096}\?)(\S+)", re.I)
_SETTING = re.compile(r"(?<![^&])([^&=\s]+)=([^&\s]*?)(?=[)\]}>'\",.:;]{0,16}(?:&|$))")
_SHOWN_SETTINGS = frozenset({
    "allow_bucket_creation", "allow_bucket_deletion", "background_writes", "buffer_size", "connect_timeout",
    "default_block_size", "enable_tls", "endpoint_override", "force_virtual_addressing", "region", "replication",
    "request_timeout", "scheme",
})  # fmt: skip
"""Client settings that are safe to show; any other may be a key, a token or a signature."""


def without_secrets(text: str) -> str:
    """Mask passwords and keys in every URI of a text, also where ``pathlib.Path`` merged its two slashes."""
    if ":/" not in text:
        return text
    text = _USER_AND_PASSWORD.sub(rf"\1{MASK}@", text)
    return _SETTINGS.sub(lambda uri: uri[1] + _SETTING.sub(_masked_setting, uri[2]), text)


def _masked_setting(setting: re.Match[str]) -> str:
    return setting[0] if setting[1].lower() in _SHOWN_SETTINGS else f"{setting[1]}={MASK}"


def is_local(path: str) -> bool:
    """True for a local path or ``file://`` URI."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> str:
    """Absolute path of a local path or ``file://`` URI."""
    if path.startswith("/") and not _NOT_NORMAL.search(path):
        return path  # 20,000 directories are listed this way
    if path.startswith("file://"):
        path = unquote(path.removeprefix("file://").removeprefix("localhost"))
    return os.path.abspath(path)


def split_settings(path: str) -> tuple[str, str]:
    """A URI without its settings, and these with their ``?``. A local name may contain one."""
    if is_local(path):
        return path, ""
    plain, mark, settings = path.partition("?")
    return plain.rstrip("/"), mark + settings


def join(base: str, *parts: str) -> str:
    """Path below ``base``, also for URIs."""
    plain, settings = split_settings(base)
    return posixpath.join(plain, *parts) + settings


def name_of(path: str) -> str:
    """Last component of a path or URI."""
    return posixpath.basename(split_settings(path)[0].rstrip("/"))


def parent_of(path: str) -> str:
    """Path without its last component."""
    plain, settings = split_settings(path)
    return posixpath.dirname(plain.rstrip("/")) + settings


def with_parents(path: str) -> list[str]:
    """Prefixes of a relative path, topmost first: ``a``, ``a/b``, ``a/b/c``."""
    return list(accumulate(path.split("/", 8), "{}/{}".format))


def is_inside(path: str, directory: str) -> bool:
    """True if an ``absolute`` path is a directory or below it."""
    return (split_settings(path)[0] + "/").startswith(split_settings(directory)[0].rstrip("/") + "/")


def absolute(path: str) -> str:
    """Path that means the same in every process: absolute if local, URIs as they are."""
    return local_path(path) if is_local(path) else "".join(split_settings(path))
