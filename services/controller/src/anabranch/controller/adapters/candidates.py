"""`Candidates` over NATS: one request and one reply for each promise."""

import nats.errors
from nats.aio.client import Client
from pydantic import TypeAdapter, ValidationError

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts.elections import (
    PROMISE_S_MAX,
    PromiseAnswer,
    PromiseEpoch,
    PromiseRefused,
)
from anabranch.common.contracts.subjects import promise_request
from anabranch.common.errors import Unavailable
from anabranch.controller.domain.cluster.election import CopyEnd, Promised

_ANSWER: TypeAdapter[PromiseAnswer] = TypeAdapter(PromiseAnswer)


class NatsCandidates:
    """See `Candidates`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def promise(
        self, node_id: str, container: int, log_id: str, container_epoch: int
    ) -> Promised:
        """See `Candidates.promise`."""
        question = PromiseEpoch(container=container, log_id=log_id, container_epoch=container_epoch)
        with as_unavailable("bring the promise of a segment store", store=node_id):
            try:
                reply = await self._client.request(
                    promise_request(node_id),
                    question.model_dump_json().encode(),
                    timeout=PROMISE_S_MAX,
                )
            except nats.errors.NoRespondersError as error:
                raise Unavailable("the segment store does not run", store=node_id) from error
        return promised_in(reply.data)


def promised_in(data: bytes) -> Promised:
    """The promise in a reply. Raises Unavailable (unreadable), and the store's error."""
    try:
        answer = _ANSWER.validate_json(data)
    except ValidationError as error:
        raise Unavailable("a segment store's promise is malformed") from error
    if isinstance(answer, PromiseRefused):
        raise answer.error.to_error()
    end = answer.end
    if end is None or not answer.copy_id:
        return Promised("", None)
    return Promised(answer.copy_id, CopyEnd(end.container_epoch, end.number, end.last_sequence))
