"""Sends queries to controllers over NATS: to one, and to a second one if the first stays silent.

Owns one inbox for all answers; an answer's subject names its question. An answer to a question that
has ended is dropped. `controllers` decides which controller gets a query. The client requests the
list of controllers beside the questions, and no question waits for it.
"""

import asyncio
import itertools
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js.api import Header
from pydantic import ValidationError

from anabranch.client.wire.controllers import HedgeBudget, Roster, hedge_after_s
from anabranch.common.adapters.nats_connection import keeping_cancellation
from anabranch.common.contracts import subjects
from anabranch.common.contracts.membership import ControllerList
from anabranch.common.errors import ConnectionLost, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.speaking import enveloped

START_HINT = "check the address, or start a cluster with `anabranch up`"
TIMEOUT_S_MIN = 0.01
SENT_MAX = 4
"""Bounds the copies of one question: the first, a hedge, and one to the group if none listens."""
_LIST = "list"
_NO_RESPONDERS = "503"


class _Reply(NamedTuple):
    """An answer to the question's copy number `attempt`, counted from 0."""

    attempt: int
    message: Msg


class NatsQueries:
    """Sends queries and finds their answers. Uses a connection that its caller closes."""

    def __init__(
        self, connection: NatsClient, clock: Clock, roster: Roster, token: str = ""
    ) -> None:
        self._connection = connection
        self._token = token
        self._clock = clock
        self._roster = roster
        self._budget = HedgeBudget()
        self._inbox = connection.new_inbox()
        self._listens = False
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Queue[_Reply]] = {}

    async def ask(self, name: str, payload: bytes, timeout_s: float) -> bytes:
        """Return the encoded answer of a controller. Raises Unavailable, ConnectionLost."""
        number = str(next(self._numbers))
        question = _Question(self, name, payload, number)
        self._waiting[number] = question.replies
        try:
            await self._listen()
            await self._learn_who_is_there()
            self._budget.asked()
            return await question.answer(max(timeout_s, TIMEOUT_S_MIN))
        except nats.errors.Error as error:
            raise ConnectionLost("the connection to nats is lost", reason=str(error)) from error
        finally:
            del self._waiting[number]

    async def _listen(self) -> None:
        if self._listens:
            return
        self._listens = True  # Publications of other tasks leave after this subscription.
        try:
            with keeping_cancellation():
                await self._connection.subscribe(f"{self._inbox}.>", cb=self._receive)
        except BaseException:
            self._listens = False
            raise

    async def _receive(self, message: Msg) -> None:
        number, attempt = message.subject.rsplit(".", 2)[1:]
        if number == _LIST:
            self._learn(message)
            return
        replies = self._waiting.get(number)
        if replies is not None and not replies.full():
            replies.put_nowait(_Reply(int(attempt), message))

    async def _learn_who_is_there(self) -> None:
        if self._roster.is_due(self._clock.monotonic()):
            await self.send("", "list_controllers", b"{}", f"{_LIST}.0")

    def _learn(self, message: Msg) -> None:
        try:
            found = ControllerList.model_validate_json(message.data)
        except ValidationError:
            return  # The answer is an error; the list is requested again soon.
        self._roster.listed((one.controller_id, one.live) for one in found.controllers)

    async def send(self, controller: str, name: str, payload: bytes, reply: str) -> None:
        """Send to a controller by its name; "": to the queue group, where NATS chooses."""
        subject = subjects.direct_query(controller, name) if controller else subjects.query(name)
        request = enveloped(payload, self._token)
        with keeping_cancellation():
            await self._connection.publish(
                subject, request.body, reply=f"{self._inbox}.{reply}", headers=request.headers()
            )

    def now_s(self) -> float:
        return self._clock.monotonic()

    @property
    def roster(self) -> Roster:
        return self._roster

    @property
    def budget(self) -> HedgeBudget:
        return self._budget


class _Question:
    """One question until its answer; `replies` receives its answers."""

    def __init__(self, queries: NatsQueries, name: str, payload: bytes, number: str) -> None:
        self._queries = queries
        self._name = name
        self._payload = payload
        self._number = number
        self.replies: asyncio.Queue[_Reply] = asyncio.Queue(SENT_MAX)
        self._asked: list[str] = []
        """The controllers in the order in which they were asked; "": the group."""
        self._without: set[str] = set()
        """Those of them that do not listen."""

    async def answer(self, timeout_s: float) -> bytes:
        """See `NatsQueries.ask`."""
        roster, now_s = self._queries.roster, self._queries.now_s
        deadline_s = now_s() + timeout_s
        await self._ask(roster.choose(now_s()))
        hedge_s = hedge_after_s(self._name)
        if hedge_s is not None and hedge_s < timeout_s:
            answer = await self._next(now_s() + hedge_s)
            if answer is not None:
                return answer
            await self._hedge()
        answer = await self._next(deadline_s)
        if answer is not None:
            return answer
        for silent in self._asked:
            roster.was_silent(silent, now_s())
        raise Unavailable("the controller did not answer in time")

    async def _ask(self, controller: str) -> None:
        self._asked.append(controller)
        reply = f"{self._number}.{len(self._asked) - 1}"
        await self._queries.send(controller, self._name, self._payload, reply)

    async def _hedge(self) -> None:
        """Ask a second controller if one is known to answer and the budget allows it."""
        first, now_s = self._asked[-1], self._queries.now_s()
        second = self._queries.roster.choose(now_s, but=first)
        if second and self._queries.budget.take():
            self._queries.roster.was_silent(first, now_s)
            await self._ask(second)

    async def _next(self, until_s: float) -> bytes | None:
        """Return the first answer until then. Raises Unavailable if no controller listens."""
        while True:
            left_s = until_s - self._queries.now_s()
            try:
                async with asyncio.timeout(max(left_s, 0)):
                    attempt, message = await self.replies.get()
            except TimeoutError:
                return None
            controller = self._asked[attempt]
            if not _is_nobody(message):
                self._queries.roster.answered(_answered_by(message) or controller)
                return message.data
            await self._ask_another(controller)

    async def _ask_another(self, controller: str) -> None:
        """NATS reports at once that the controller does not listen: ask the group instead."""
        self._queries.roster.was_silent(controller, self._queries.now_s())
        self._without.add(controller)
        if "" not in self._asked:
            await self._ask("")
        elif self._without.issuperset(self._asked):
            raise Unavailable("no controller answers", remedy=START_HINT)


def _is_nobody(message: Msg) -> bool:
    return (message.headers or {}).get(Header.STATUS) == _NO_RESPONDERS


def _answered_by(message: Msg) -> str:
    """The reply subject of a controller's answer names that controller. "": the answer has none."""
    return subjects.asked_controller(message.reply)
