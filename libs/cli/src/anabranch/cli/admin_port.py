"""What commands ask about streams and operations, whichever way they reach the cluster.

Two fulfil it: `client_admin` on the Python client, `http.admin` on the HTTP gateway. A change
returns the handle of its operation after at most `wait_s` seconds; its `state` says whether it
has ended. What is told comes as fields, the same ones from both; times are Unix milliseconds.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from anabranch.client import KeyRange, Operation, StreamConfig

Fields = Mapping[str, Any]
OperationFilter = Literal["running", "failed", "all"]
CutName = Literal["head", "tail"]


class Admin(Protocol):
    """The methods raise what those of `anabranch.client.Client` raise."""

    async def delete_scope(self, scope: str, *, recursive: bool, wait_s: float) -> Operation: ...
    async def create(self, stream: str, config: StreamConfig, *, wait_s: float) -> Operation: ...
    async def update(self, stream: str, config: StreamConfig, *, wait_s: float) -> Operation: ...

    async def scale(
        self,
        stream: str,
        seal: Sequence[int],
        new_ranges: Sequence[KeyRange],
        *,
        expected_epoch: int | None,
        wait_s: float,
    ) -> Operation: ...

    async def truncate(
        self, stream: str, cut: Mapping[int, int], *, wait_s: float
    ) -> Operation: ...

    async def seal(self, stream: str, *, wait_s: float) -> Operation: ...
    async def delete(self, stream: str, *, wait_s: float) -> Operation: ...

    def list_streams(self, scope: str, *, tag: str) -> AsyncIterator[str]:
        """Names in order; `tag`: of those that carry it, empty: of all."""
        ...

    async def config(self, stream: str) -> StreamConfig: ...

    async def segments(
        self, stream: str, *, epoch: int | None, time_ms: int | None, rates: bool
    ) -> list[Fields]:
        """The current segments by key; or those of an epoch; or those of a time; or the current
        ones with their `rate`, which lacks where it is not known."""
        ...

    async def segment(self, stream: str, segment_id: int) -> Fields: ...

    async def successors(self, stream: str, segment_id: int) -> Fields:
        """`status`, and `successors` with their `predecessors`."""
        ...

    async def cut(self, stream: str, name: CutName) -> Fields:
        """`stream_epoch`, and `segments` with their `offset`."""
        ...

    def epochs(self, stream: str) -> AsyncIterator[Fields]:
        """Newest first."""
        ...

    async def operation(self, operation: str, *, wait_s: float) -> Fields:
        """As soon as it ended, or as it is after `wait_s`."""
        ...

    def operations(self, state: OperationFilter, scope: str) -> AsyncIterator[Fields]:
        """By id; `scope`: of it and its streams, empty: of all."""
        ...
