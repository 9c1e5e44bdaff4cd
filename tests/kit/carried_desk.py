"""Carried transactions, submitted to a desk of `transaction_desk`."""

from typing import Any

from anabranch.common.contracts.transactions import CarriedBlock, TransactionDescription
from anabranch.common.model.transaction import transaction_id
from anabranch.common.wire.block_encoding import encode_block
from anabranch.controller.handlers.desk.desk import QueryDesk
from kit.transaction_desk import FIRST, SECOND, START_MS, TransactionWorld


def block(*events: bytes) -> bytes:
    return encode_block(
        list(events), writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0
    )


def an_id(number: int = 0, at_ms: int = START_MS) -> str:
    return transaction_id(at_ms, number.to_bytes(10, "big"))


def asked(number: int = 0, blocks: dict[int, bytes] | None = None, **fields: Any) -> dict[str, Any]:
    """The fields of a request; `blocks`: by segment."""
    told = {FIRST: block(b"one"), SECOND: block(b"other")} if blocks is None else blocks
    carried_blocks = [CarriedBlock(segment_id=s, block=b) for s, b in told.items()]
    return {
        "transaction_id": an_id(number),
        "incarnation": 1,
        "stream_epoch": 0,
        "blocks": carried_blocks,
        **fields,
    }


async def submit(world: TransactionWorld, desk: QueryDesk | None = None, **fields: Any) -> Any:
    answer = await world.ask("commit_events", TransactionDescription, desk, **asked(**fields))
    return answer.transaction
