"""A key-value bucket on a cluster that stores each write whose condition held a moment before.

It is what `JetStreamObjectStore` calls: a client, and its JetStream. A write is stored if its
condition holds, or held before the key's last message.
"""

import datetime
from collections.abc import Mapping
from typing import cast

import nats.js.errors
from nats.aio.client import Client
from nats.js.api import PubAck, RawStreamMsg

from anabranch.common.adapters.jetstream_conditions import EXPECTED_SEQUENCE_HEADER

WRONG_LAST_SEQUENCE = 10071


class CarelessBucket:
    """The server and the connection in one; `messages` are those of all keys, in order."""

    def __init__(self) -> None:
        self.messages: list[RawStreamMsg] = []
        self._server_info = {"cluster": "careless"}

    @property
    def client(self) -> Client:
        """It, as the adapter's connection."""
        return cast(Client, self)

    def jetstream(self) -> "CarelessBucket":
        """The connection's JetStream."""
        return self

    def new_inbox(self) -> str:
        """An inbox with a name of its own."""
        return f"_INBOX.{len(self.messages)}"

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str], **_given: object
    ) -> PubAck:
        """Store the write, or refuse it."""
        before = [0, *(one.seq or 0 for one in self._of(subject))][-2:]
        if int(headers[EXPECTED_SEQUENCE_HEADER]) not in before:
            raise nats.js.errors.BadRequestError(
                code=400, err_code=WRONG_LAST_SEQUENCE, description="wrong last sequence"
            )
        stored = RawStreamMsg(
            subject=subject,
            seq=len(self.messages) + 1,
            data=payload,
            headers=dict(headers),
            time=datetime.datetime.fromtimestamp(0, datetime.UTC),
        )
        self.messages.append(stored)
        return PubAck(stream="KV", seq=len(self.messages))

    async def get_last_msg(self, _stream: str, subject: str) -> RawStreamMsg:
        """The newest message of the key."""
        return self._required(self._of(subject)[-1:])

    async def get_msg(self, _stream: str, seq: int, subject: str, **_given: object) -> RawStreamMsg:
        """The key's first message from a sequence on."""
        return self._required([one for one in self._of(subject) if (one.seq or 0) >= seq])

    def _of(self, subject: str) -> list[RawStreamMsg]:
        return [one for one in self.messages if one.subject == subject]

    @staticmethod
    def _required(found: list[RawStreamMsg]) -> RawStreamMsg:
        if not found:
            raise nats.js.errors.NotFoundError(code=404, description="no message found")
        return found[0]
