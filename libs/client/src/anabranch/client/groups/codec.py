"""A reader group's state and entries as bytes: MessagePack by field names, so fields can be added.

An entry of an unknown kind and a state of a newer schema number are refused: a reader that folded
them differently would compute other owners. Unknown fields of an entry are ignored; `apply` must
not depend on them.
"""

from dataclasses import replace

import msgspec

from anabranch.client.groups import apply as entries
from anabranch.client.groups.state import SCHEMA_NUMBER, ReaderGroupState
from anabranch.client.groups.updates import AnyUpdate
from anabranch.common.errors import FormatTooNew

_ENCODER = msgspec.msgpack.Encoder()
_STATE = msgspec.msgpack.Decoder(ReaderGroupState)
_UPDATE: msgspec.msgpack.Decoder[AnyUpdate] = msgspec.msgpack.Decoder(AnyUpdate)


class ReaderGroupCodec:
    """The codec of reader groups for a `StateSynchronizer`."""

    def encode_state(self, state: ReaderGroupState) -> bytes:
        return _ENCODER.encode(state)

    def decode_state(self, data: bytes) -> ReaderGroupState:
        """Raises FormatTooNew."""
        try:
            state = _STATE.decode(data)
        except msgspec.DecodeError as error:
            raise _unknown("state", str(error)) from error
        if state.schema_number > SCHEMA_NUMBER:
            raise _unknown("state", f"its schema number is {state.schema_number}")
        return replace(state, schema_number=SCHEMA_NUMBER)

    def encode_update(self, update: AnyUpdate) -> bytes:
        return _ENCODER.encode(update)

    def decode_update(self, data: bytes) -> AnyUpdate:
        """Raises FormatTooNew."""
        try:
            return _UPDATE.decode(data)
        except msgspec.DecodeError as error:
            raise _unknown("entry", str(error)) from error

    def apply(
        self,
        state: ReaderGroupState,
        update: AnyUpdate,
        *,
        revision: int,  # noqa: ARG002
    ) -> ReaderGroupState:
        """See `groups.apply`; the entry's place in the log does not matter."""
        return entries.apply(state, update)


def _unknown(what: str, cause: str) -> FormatTooNew:
    return FormatTooNew(
        f"a reader group's {what} cannot be read",
        remedy="use the release of the client that wrote it, or a newer one",
        cause=cause,
    )
