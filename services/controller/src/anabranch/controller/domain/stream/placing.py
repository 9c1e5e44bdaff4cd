"""Where a stream's segments lie: spread over the containers, or together in one (ADR 18). Pure.

The numbers of the segments say which, so that whoever knows a segment's name knows its container.
The numbers of one name only grow, over all of its incarnations. A name whose numbers have reached
`TOGETHER_FIRST` therefore cannot become the name of a stream that spreads.
"""

from dataclasses import replace

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import TOGETHER_FIRST
from anabranch.common.model.stream import StreamConfig
from anabranch.controller.domain.stream.state import Stream


def first_number(stream: Stream, config: StreamConfig) -> int:
    """The number of the first segment of the stream's next incarnation.

    Raises InvalidRequest if the name has used up the numbers of streams that spread.
    """
    following = stream.highest_number + 1
    if config.together:
        return max(following, TOGETHER_FIRST)
    if following >= TOGETHER_FIRST:
        raise InvalidRequest(
            "an earlier stream of this name kept its segments together",
            remedy="create the stream with `together`, or under another name",
            stream=str(stream.ref),
        )
    return following


def kept(stream: Stream, config: StreamConfig) -> StreamConfig:
    """The configuration of an update, which keeps where the segments lie.

    Raises InvalidRequest if it asks for segments together that are spread.
    """
    if config.together and not stream.config.together:
        raise InvalidRequest(
            "the segments of a stream cannot be brought together later",
            remedy="create another stream with `together`, and copy the events",
            stream=str(stream.ref),
        )
    return replace(config, together=stream.config.together)
