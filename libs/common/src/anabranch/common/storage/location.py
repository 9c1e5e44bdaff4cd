"""Parses a tier-2 URL without I/O, so that it can be checked early.

    file:///absolute/directory    a directory
    memory:  (or memory://)       the process's memory, lost with it
    s3://bucket/prefix            S3, or a server that speaks its protocol
    gs://bucket/prefix            Google Cloud Storage
    az://container/prefix         Azure Storage

A URL is printed, logged and passed on. A URL with a password or a key is therefore refused, and no
error repeats it.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import BaseModel, ConfigDict

from anabranch.common.errors import InvalidSetting

SUPPORTED = (
    "file:///absolute/directory, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix "
    "or memory:"
)
Provider = Literal["s3", "gs", "az"]

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}[a-z0-9]")
_PREFIX_PART = re.compile(r"[A-Za-z0-9_=.-]+")


@dataclass(frozen=True, slots=True)
class DirectoryLocation:
    """An absolute path on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class MemoryLocation:
    """The memory of one process."""


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket of an object store; `prefix` without slashes at its ends, empty for all of it."""

    provider: Provider
    bucket: str
    prefix: str


class ObjectOptions(BaseModel):
    """The access to an object store. Empty fields come from the provider's environment
    variables. They never include the bucket, which only the URL names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str = ""
    """``http(s)://host:port`` of a server that is not the provider's own."""
    allow_http: bool = False
    """Whether the endpoint may be used without TLS."""
    region: str = ""
    credentials_file: Path | None = None
    """Keys as JSON, as docs/tier2.md describes. For gs the service account's own key file."""


Location = DirectoryLocation | MemoryLocation | BucketLocation


def parse_location(url: str) -> Location:
    """The location of tier 2. Raises InvalidSetting, which names the supported forms."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _not_supported(_shown(url)) from error
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidSetting(
            "the URL of tier 2 contains more than a location",
            remedy="remove user, password, options and fragment; credentials come from the "
            "provider's environment variables or from a file named by tier2_options",
            url=_shown(url),
        )
    match parts.scheme:
        case "memory" if not parts.netloc and not parts.path:
            return MemoryLocation()
        case "file" if parts.netloc in ("", "localhost") and parts.path.startswith("/"):
            return DirectoryLocation(Path(unquote(parts.path)))
        case "s3" | "gs" | "az":
            return _bucket(parts, url)
        case _:
            raise _not_supported(_shown(url))


def _bucket(parts: SplitResult, url: str) -> BucketLocation:
    prefix = parts.path.strip("/")
    steps = prefix.split("/") if prefix else []
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise InvalidSetting(
            "the URL of tier 2 names no bucket",
            remedy=f"write it as {parts.scheme}://bucket/prefix",
            url=_shown(url),
        )
    if not all(_PREFIX_PART.fullmatch(step) and step not in (".", "..") for step in steps):
        raise InvalidSetting(
            "the prefix in the URL of tier 2 cannot be used",
            remedy="use letters, digits and the signs '_', '=', '.', '-', and '/' between them",
            url=_shown(url),
        )
    return BucketLocation(cast(Provider, parts.scheme), parts.netloc, prefix)


def _not_supported(url: str) -> InvalidSetting:
    return InvalidSetting("the URL of tier 2 is not supported", remedy=f"use {SUPPORTED}", url=url)


def _shown(url: str) -> str:
    """The URL without parts that may be secret: user and password, options, fragment."""
    scheme, separator, rest = re.split(r"[?#]", url, maxsplit=1)[0].partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
