"""Tier 2 in an object store, over obstore.

One request creates an object, and the server refuses it if the name is taken (``If-None-Match``
and equivalents). Uploads in several parts do not allow this condition. A success means that the
object is durable.

If an answer is lost or is a server error, the outcome of the request is unknown. obstore retries
reads. This module retries puts itself, because only it knows that an earlier attempt of its own may
have taken the name: then the outcome is unknown, not "taken".

While the store serves, refused credentials raise Unavailable, like a server that does not answer:
an operator rotates a key or renews a token, and the journal keeps the data safe meanwhile. At the
start, `check` raises Unauthorized instead. State owned: none.
"""

import re
from collections.abc import Sequence

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore

from anabranch.common.errors import (
    AnabranchError,
    CorruptChunk,
    InvalidSetting,
    ObjectExists,
    ObjectNotFound,
    OutcomeUnknown,
    TierTwoNotHere,
    Unauthorized,
    Unavailable,
)
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.common.storage.ports import Buffer

PUT_ATTEMPTS_MAX = 3
PUT_PAUSES = Backoff(first_s=0.3, longest_s=1.0)
_CAUSE_LENGTH_MAX = 300
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_STILL_BEING_WRITTEN = "ConditionalRequestConflict"
"""An error of S3: an unfinished request for the same new name exists. The put is retried."""
_REFUSED = (PermissionDeniedError, UnauthenticatedError)
_RIGHTS = "check the credentials of tier 2, and their right to read, write, list and delete"


class ObjectChunkStorage:
    """Implements `ports.ChunkStorage`. `writes` must not retry by itself; `reads` may.

    Its calls raise Unavailable if the server does not answer or refuses the credentials, and
    TierTwoNotHere if the bucket does not exist.
    """

    def __init__(self, writes: ObjectStore, reads: ObjectStore, clock: Clock, rng: Rng) -> None:
        self._rng = rng
        self._writes = writes
        self._reads = reads
        self._clock = clock

    async def check(self) -> bool:
        """Return whether the bucket holds an object; detect a wrong address, bucket or key.

        Raises Unauthorized, TierTwoNotHere, Unavailable.
        """
        try:
            async for batch in obstore.list(self._reads, chunk_size=1):
                return len(batch) > 0
        except (BaseError, OSError) as error:
            if not _is_refused(error):
                raise _failed(error, "list", "") from error
            raise Unauthorized(
                "tier 2 refused the credentials", remedy=_RIGHTS, cause=_cause(error)
            ) from error
        return False

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        """See `ports.ChunkStorage`. Also raises OutcomeUnknown if an attempt may have created the
        object and no answer confirmed it."""
        unsure = False
        last: Exception | None = None
        for attempt in range(PUT_ATTEMPTS_MAX):
            if attempt:
                await self._clock.sleep(PUT_PAUSES.delay_s(attempt, self._rng.random()))
            try:
                await obstore.put_async(self._writes, name, parts, mode="create")
            except AlreadyExistsError as error:
                last = error
                if _STILL_BEING_WRITTEN in str(error):
                    continue
                if not unsure:
                    raise ObjectExists("the object exists", name=name) from error
                break
            except (FileNotFoundError, NotSupportedError, *_REFUSED) as error:
                raise _failed(error, "create", name) from error
            except (BaseError, OSError) as error:
                unsure, last = True, error
            else:
                return
        assert last is not None
        raise OutcomeUnknown(
            "no reply from tier 2 to the creation of an object", name=name, cause=_cause(last)
        ) from last

    async def get(self, name: str) -> bytes:
        try:
            found = await obstore.get_async(self._reads, name)
            return bytes(await found.bytes_async())
        except (BaseError, OSError) as error:
            raise _failed(error, "read", name) from error

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        if length == 0:  # HTTP has no empty range.
            await self.size(name)
            return b""
        try:
            data = await obstore.get_range_async(self._reads, name, start=offset, length=length)
        except FileNotFoundError as error:
            raise _failed(error, "read", name) from error
        except (BaseError, OSError) as error:
            # Servers report a range beyond the end in many ways, so compare the size.
            if await self.size(name) < offset + length:
                raise _too_short(name, offset, length) from error
            raise _failed(error, "read", name) from error
        if len(data) != length:
            raise _too_short(name, offset, length)
        return bytes(data)

    async def size(self, name: str) -> int:
        try:
            return (await obstore.head_async(self._reads, name))["size"]
        except (BaseError, OSError) as error:
            raise _failed(error, "size", name) from error

    async def list(self, prefix: str) -> Sequence[str]:
        """See `ports.ChunkStorage`. The server lists whole directories, and this method filters
        by the rest of `prefix`."""
        directory = prefix.rpartition("/")[0]
        found: list[str] = []
        try:
            async for batch in obstore.list(self._reads, directory or None):
                found += [one["path"] for one in batch]
        except (BaseError, OSError) as error:
            raise _failed(error, "list", prefix) from error
        return sorted(name for name in found if name.startswith(prefix))

    async def delete(self, name: str) -> None:
        try:
            await obstore.delete_async(self._reads, name)
        except FileNotFoundError as error:
            if _no_bucket(error):
                raise _failed(error, "delete", name) from error
        except (BaseError, OSError) as error:
            raise _failed(error, "delete", name) from error


def _failed(error: Exception, call: str, name: str) -> AnabranchError:
    """Map an error of obstore to the project's error; `call` is the request in one word."""
    cause = _cause(error)
    if _no_bucket(error) or (call == "create" and isinstance(error, FileNotFoundError)):
        return TierTwoNotHere(
            "the bucket of tier 2 does not exist",
            remedy="create the bucket, or correct its name in the URL of tier 2",
            cause=cause,
        )
    if _is_refused(error):
        return Unavailable(
            "tier 2 refused the credentials", remedy=_RIGHTS, call=call, name=name, cause=cause
        )
    match error:
        case FileNotFoundError():
            return ObjectNotFound("the object does not exist", name=name)
        case NotSupportedError():
            return InvalidSetting(
                "tier 2 does not support create-only writes",
                remedy="choose a back end for tier 2 with create-only writes",
                call=call,
                cause=cause,
            )
        case _:
            return Unavailable("unexpected answer from tier 2", call=call, name=name, cause=cause)


def _too_short(name: str, offset: int, length: int) -> CorruptChunk:
    return CorruptChunk("the object is truncated", name=name, offset=offset, length=length)


def _is_refused(error: Exception) -> bool:
    """Whether the server refused access; for lists obstore has no class, only the text."""
    words = ("status code: 401", "status code: 403")
    return isinstance(error, _REFUSED) or any(word in str(error) for word in words)


def _no_bucket(error: Exception) -> bool:
    text = str(error)
    return any(word in text for word in _NO_BUCKET)


def _cause(error: Exception) -> str:
    """The first line of an error, without the query of its URL, which may hold a signature."""
    first = str(error).partition("\n\nDebug source:")[0]
    words = " ".join(re.sub(r"(https?://[^\s?)]*)\?[^\s)]*", r"\1", first).split())
    return words[:_CAUSE_LENGTH_MAX]
