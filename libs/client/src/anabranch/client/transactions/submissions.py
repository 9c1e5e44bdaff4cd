"""Lets carried commits of one client share a submission (ADR 21).

    commit ──► the open submission ──a turn──► closed: one request ──► COMMITTED, for all in it
                      ▲                              └──refused, nothing stored──► each alone
    commit meanwhile ─┘

Of the commits to a stream with the same settings and label, one submission is under way at once. A
commit that begins meanwhile joins the open one, which is closed and sent in its turn. A submission
is one carried transaction: the events of all its commits become readable together, and all have
its id.

No task belongs to a submission. One of its commits performs it, and the others wait for that one.
If the performing call is cancelled, another one goes on. If it raises OutcomeUnknown, all others
raise it too, and each of them may perform it again: the request is the same.

A refused submission has stored nothing. The reason may be the events of a single transaction, so
its transactions then commit alone. A submission that has stored nothing is never sent again, so
the events of its transactions may be committed otherwise.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

from anabranch.client.settings import WriterSettings
from anabranch.client.transactions.carried import CarriedCommit
from anabranch.client.transactions.committing import Commit, Committing
from anabranch.client.transactions.kept import Kept
from anabranch.common.contracts.transactions import TransactionInfo
from anabranch.common.errors import AnabranchError, Busy, OutcomeUnknown, Retry
from anabranch.common.model.transaction import CARRIED_SIZE_BYTES_MAX

_Kind = tuple[WriterSettings, str]
"""The settings and the label of commits that may share a submission."""


class Submissions:
    """The commits of one client for one stream; `shared`: what they have in common."""

    def __init__(self, shared: Committing) -> None:
        self.shared = shared
        self._open: dict[_Kind, _Submission] = {}
        self._turns: WeakValueDictionary[_Kind, asyncio.Lock] = WeakValueDictionary()
        """Only while a submission of the kind is open or under way."""

    def short(self, kept: Kept, settings: WriterSettings) -> Commit:
        """The commit of these events by one group."""
        return Commit(kept, self.shared, settings)

    def carried(self, kept: Kept, settings: WriterSettings, label: str) -> "JoinedCommit":
        """The commit that carries these events."""
        return JoinedCommit(kept, self, settings, label)

    def join(self, kept: Kept, settings: WriterSettings, label: str) -> "_Submission":
        """Add the events to the open submission of their kind."""
        kind = (settings, label)
        found = self._open.get(kind)
        if found is None or not found.has_room_for(kept):
            turn = self._turns.setdefault(kind, asyncio.Lock())
            found = self._open[kind] = _Submission(self, kind, turn)
        found.kept.append(kept)
        return found

    def close(self, submission: "_Submission") -> None:
        """Let no more commits join it. Idempotent."""
        if self._open.get(submission.kind) is submission:
            del self._open[submission.kind]


class JoinedCommit:
    """The commit of one transaction, with others or alone.

    `is_unclear`: its events may be stored, or may still be sent by another commit.
    """

    def __init__(
        self, kept: Kept, submissions: Submissions, settings: WriterSettings, label: str
    ) -> None:
        self._kept = kept
        self._submissions = submissions
        self._settings = settings
        self._label = label
        self._joined: _Submission | None = None
        self._alone: CarriedCommit | None = None

    @property
    def is_unclear(self) -> bool:
        if self._alone is not None:
            return self._alone.is_unclear
        return self._joined is not None and self._joined.is_unclear

    async def perform(self, *, wait: bool) -> TransactionInfo | None:
        """Commit the events, as `CarriedCommit.perform`. Without `wait`, it does so alone.

        Also raises Busy, with nothing stored, if no turn came in the writer's retry time.
        """
        may_join = wait and self._kept.cost <= CARRIED_SIZE_BYTES_MAX
        if self._alone is None and (may_join or self._joined is not None):
            info = await self._with_others()
            self._joined = None
            if info is not None:
                return info
        if self._alone is None:
            settings, label = self._settings, self._label
            self._alone = CarriedCommit((self._kept,), self._submissions.shared, settings, label)
        return await self._alone.perform(wait=wait)

    async def _with_others(self) -> TransactionInfo | None:
        """As `_Submission.perform`."""
        now_s = self._submissions.shared.runtime.clock.monotonic()
        if self._joined is None:
            self._joined = self._submissions.join(self._kept, self._settings, self._label)
        joined = self._joined
        try:
            return await joined.perform(now_s + self._settings.retry_timeout_s)
        except BaseException:
            joined.leave(self._kept)
            raise

    def unknown(self, cause: str) -> OutcomeUnknown:
        """As `CarriedCommit.unknown`; only if it is unclear."""
        commit = self._alone
        if commit is None and self._joined is not None:
            commit = self._joined.commit
        assert commit is not None, "a commit that has made no request is not unclear"
        return commit.unknown(cause)


class _Submission:
    """One submission. `kept`: the events of each commit in it.

    `commit`: its request. Without one the submission is open: nothing has been sent, and all its
    commits are being performed. With one it is closed, and may have been sent.
    """

    def __init__(self, submissions: Submissions, kind: _Kind, turn: asyncio.Lock) -> None:
        self.kind = kind
        self.kept: list[Kept] = []
        self.commit: CarriedCommit | None = None
        self._submissions = submissions
        self._turn = turn
        self._is_dropped = False
        """Nothing of it is stored, and it is not sent any more."""
        self._outcome: TransactionInfo | None = None
        self._attempt: asyncio.Future[None] | None = None
        """What the commit that performs it is doing. Cancelled: the others look again; otherwise
        they raise its error."""

    @property
    def is_unclear(self) -> bool:
        return self.commit is not None and not self._is_dropped

    def has_room_for(self, kept: Kept) -> bool:
        return sum(each.cost for each in self.kept) + kept.cost <= CARRIED_SIZE_BYTES_MAX

    def leave(self, kept: Kept) -> None:
        """Take a commit out of it, unless it is closed."""
        if self.commit is None:
            self.kept = [each for each in self.kept if each is not kept]
            if not self.kept:
                self._submissions.close(self)

    async def perform(self, until_s: float) -> TransactionInfo | None:
        """Send it, or wait for the commit that does. Returns None, with nothing stored, if its
        commits must be performed alone. Raises as `JoinedCommit.perform`.

        `until_s`: the end of the time to wait for a turn.
        """
        while self._outcome is None and not self._is_dropped:
            if self._attempt is None:
                await self._attempted(until_s)
                continue
            attempt = self._attempt
            await asyncio.wait({attempt})
            if not attempt.cancelled() and (error := attempt.exception()) is not None:
                assert isinstance(error, AnabranchError)
                raise error.copy()
        return self._outcome

    async def _attempted(self, until_s: float) -> None:
        self._attempt = attempt = asyncio.get_running_loop().create_future()
        try:
            if self.commit is not None:
                await self._sent(self.commit, attempt)
                return
            async with self._in_turn(until_s):
                with suppress(AnabranchError):  # the request will meet the same error
                    await self._submissions.shared.layout.get()
                await self._sent(self._closed(), attempt)
        finally:
            self._attempt = None
            attempt.cancel()

    @asynccontextmanager
    async def _in_turn(self, until_s: float) -> AsyncIterator[None]:
        """Wait for the turn. Raises Busy if it does not come until then."""
        shared = self._submissions.shared
        try:
            async with asyncio.timeout(max(0.0, until_s - shared.runtime.clock.monotonic())):
                await self._turn.acquire()
        except TimeoutError:
            raise Busy(
                "earlier commits of this client to the stream are still under way",
                remedy="wait until they have ended, then commit again",
                stream=str(shared.stream),
            ) from None
        try:
            yield
        finally:
            self._turn.release()

    def _closed(self) -> CarriedCommit:
        self._submissions.close(self)
        self.commit = CarriedCommit(self.kept, self._submissions.shared, *self.kind)
        return self.commit

    async def _sent(self, commit: CarriedCommit, attempt: "asyncio.Future[None]") -> None:
        try:
            self._outcome = await commit.perform(wait=True)
            self._is_dropped = self._outcome is None
        except AnabranchError as error:
            if not commit.is_unclear:
                self._is_dropped = True
                if len(self.kept) > 1 and not isinstance(error, Retry):
                    return
            attempt.set_exception(error)
            attempt.exception()  # it is no defect if no other commit waits for it
            raise
