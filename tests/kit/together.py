"""Groups of appends, and how a driven container is asked to store them."""

from collections.abc import Mapping, Sequence

from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import AppendTogether, BlockPlace, Message, Request
from anabranch.segstore.domain.container.answer import VERBS
from anabranch.segstore.domain.container.circumstances import Given
from kit.container_driver import WRITER, ContainerDriver

Made = tuple[int, Sequence[bytes]]
"""The number of the first event of a block, and its events."""


def made_group(
    blocks: Mapping[str, Made], writer_id: bytes = WRITER
) -> tuple[AppendTogether, bytes]:
    """The request with one block for each segment, and its payload."""
    encoded = {
        segment: encode_block(
            list(events), writer_id=writer_id, first_event_number=first, base_timestamp_ms=0
        )
        for segment, (first, events) in blocks.items()
    }
    places = tuple(
        BlockPlace(segment, first, len(events), len(encoded[segment]))
        for segment, (first, events) in blocks.items()
    )
    request = AppendTogether(segment=places[0].segment, writer_id=writer_id, places=places)
    return request, b"".join(encoded.values())


def ask(driver: ContainerDriver, request: Request, payload: bytes = b"") -> None:
    """As a door does it: all segments that the request names are loaded first."""
    deliver = driver._deliver()
    driver.first(
        VERBS[type(request)].names(request),
        lambda: driver.container.ask(request, deliver, Given(payload)),
    )


def asked(driver: ContainerDriver, request: Request, payload: bytes = b"") -> Message:
    """The answer, once everything is durable; everything before it is already."""
    driver.commit()
    driver.take_replies()
    ask(driver, request, payload)
    driver.commit()
    (answer,) = driver.take_replies()
    return answer
