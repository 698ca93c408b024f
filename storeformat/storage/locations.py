"""Locations: what names a file or directory, a local path or a URI, and how one is made from another. Opens nothing.

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
_USER_AND_PASSWORD = re.compile(
    r"(?<![a-z0-9+.-])([a-z0-9+.-]+://?)[^\s/?#@:]{0,1024}:(?!\d*(?:[/?#\s]|$))(?:[^\s@]{0,1024}@)(?:[^\s/?#@]{0,1024}@)*",
    re.I,
)
"""What precedes the host; without a password (``abfs://container@account``) or with a port alone it is not secret."""
_SETTINGS = re.compile(r"(?<![a-z0-9+.-])([a-z0-9+.-]+://?[^\s?]{0,4096}\?)(\S+)", re.I)
_SETTING = re.compile(r"(?<![^&])([^&=\s]+)=([^&\s]*?)(?=[)\]}>'\",.:;]{0,16}(?:&|$))")
_SHOWN_SETTINGS = frozenset({
    "allow_bucket_creation", "allow_bucket_deletion", "background_writes", "buffer_size", "connect_timeout",
    "default_block_size", "enable_tls", "endpoint_override", "force_virtual_addressing", "region", "replication",
    "request_timeout", "scheme",
})  # fmt: skip
"""Settings of storage clients whose values may be shown; every other may be a key, a token or a signature."""


def without_secrets(text: str) -> str:
    """Returns a text, or a path, with the passwords and keys masked in every URI that it holds, also where a
    ``pathlib.Path`` made one slash of two.
    """
    if ":/" not in text:
        return text
    text = _USER_AND_PASSWORD.sub(rf"\1{MASK}@", text)
    return _SETTINGS.sub(lambda uri: uri[1] + _SETTING.sub(_masked_setting, uri[2]), text)


def _masked_setting(setting: re.Match[str]) -> str:
    return setting[0] if setting[1].lower() in _SHOWN_SETTINGS else f"{setting[1]}={MASK}"


def is_local(path: str) -> bool:
    """Returns whether a path or URI is on a local file system."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> str:
    """Returns the plain absolute path of a local path or ``file://`` URI."""
    if path.startswith("file://"):
        path = unquote(path.removeprefix("file://").removeprefix("localhost"))
    return os.path.abspath(path)


def split_settings(path: str) -> tuple[str, str]:
    """Returns a path without the settings of its URI, and these with their ``?``; a local name may hold one."""
    if is_local(path):
        return path, ""
    plain, mark, settings = path.partition("?")
    return plain.rstrip("/"), mark + settings


def join(base: str, *parts: str) -> str:
    """Returns a path below ``base``; works for URIs too."""
    plain, settings = split_settings(base)
    return posixpath.join(plain, *parts) + settings


def name_of(path: str) -> str:
    """Returns the last component of a path or URI."""
    return posixpath.basename(split_settings(path)[0].rstrip("/"))


def parent_of(path: str) -> str:
    """Returns the path without its last component."""
    plain, settings = split_settings(path)
    return posixpath.dirname(plain.rstrip("/")) + settings


def with_parents(path: str) -> list[str]:
    """The directories above a path that is relative, topmost first, and the path: ``a``, ``a/b``, ``a/b/c``."""
    return list(accumulate(path.split("/", 8), "{}/{}".format))


def is_inside(path: str, directory: str) -> bool:
    """Returns whether a path is that of a directory, or lies in it; both are as ``absolute`` makes them."""
    return (split_settings(path)[0] + "/").startswith(split_settings(directory)[0].rstrip("/") + "/")


def absolute(path: str) -> str:
    """Returns a path that means the same in every process: absolute if local, URIs as they are."""
    return local_path(path) if is_local(path) else "".join(split_settings(path))
