"""Contains defects: logs and counts a programming error, and lets unrelated work continue.

A step, a fold or a periodic job that raises an unexpected exception has a defect. The defect is
logged with its traceback once, counted, and shown in readiness; everything else continues. Work
that fails repeatedly is retried after growing pauses. At the tenth defect in a row it is *parked*:
this process leaves it alone until an operator redrives it. A process that takes it over tries it
again.

          defect                 tenth in a row            redrive, or no longer owned
    fine ───────▶ tried again ──────────────────▶ parked ─────────────────────────────▶ fine
     ▲                 │ succeeded
     └─────────────────┘

Only in this module may the runner, the mirror and the periodic jobs catch every exception. The
project's own errors and cancellation pass through it. State owned: the defects of this process, in
memory. A defect is repaired by an update and thus a restart, which retries everything.
"""

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anabranch.common.contracts.subjects import EVENT_SUBJECT_PREFIX
from anabranch.common.errors import AnabranchError, Defect, Parked
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.common.runtime.logger import get_logger

PARK_AT_COUNT = 10
PAUSES = Backoff(first_s=0.1, longest_s=30.0)
KEPT_COUNT_MAX = 10_000
"""How many things with defects are remembered; a forgotten one is retried at once."""
RAN_WELL_S = 60.0
"""After running this long, a job's defects are counted from 1 again."""
ERROR_LENGTH_MAX = 500

STEP = "step"
FOLD = "fold"
JOB = "job"

_TOLD = {
    STEP: "a workflow step failed because of a defect, and will be retried",
    FOLD: "an aggregate cannot be folded, and stays unchanged",
    JOB: "a job failed because of a defect, and will restart",
}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Contained:
    """One thing whose work failed because of a defect, `count` times in a row. Times are Unix ms.

    `part`: STEP, FOLD or JOB. `again_s`: the time of the next try, by the monotonic clock.
    """

    part: str
    subject: str
    error: str
    count: int
    first_ms: int
    last_ms: int
    parked: bool
    again_s: float


class naming_defects:  # noqa: N801 - a context manager, and no generator: each commit enters two
    """Raise unexpected exceptions as `Defect`; the project's errors and `expected` pass."""

    __slots__ = ("_expected", "_what")

    def __init__(self, what: str, *expected: type[Exception]) -> None:
        self._what = what
        self._expected = expected

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        if not isinstance(error, (AnabranchError, *self._expected)):
            raise as_defect(self._what, error) from error


def as_defect(what: str, error: BaseException) -> Defect:
    """The project's error for a programming error."""
    return Defect(f"{what} raised an unexpected error", cause=repr(error)[:ERROR_LENGTH_MAX])


def tell_defect(error: AnabranchError) -> None:
    """Log a defect with its traceback, at the place where it becomes an answer to a caller."""
    if isinstance(error, Defect):
        _log.error("a defect ended the request", error=str(error), exc_info=error.__cause__)


class Containment:
    """The defects of one process. `on_defect` is called for each."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        on_defect: Callable[[Contained, BaseException], None] = lambda _found, _error: None,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._on_defect = on_defect
        self._found: OrderedDict[tuple[str, str], Contained] = OrderedDict()
        self.counts: Counter[tuple[str, ...]] = Counter()
        """Defects since the start, by part."""

    # --- recording ----------------------------------------------------------------------------

    def note(
        self, part: str, subject: str, error: BaseException, *, park_at: int = PARK_AT_COUNT
    ) -> Contained:
        """Record one more defect of the thing; parked from the `park_at`-th in a row (0: never)."""
        before, now_ms = self._found.pop((part, subject), None), self._clock.now_ms()
        count = 1 if before is None else before.count + 1
        pause_s = PAUSES.delay_s(count, self._rng.random())
        found = Contained(
            part,
            subject,
            str(error)[:ERROR_LENGTH_MAX],
            count,
            now_ms if before is None else before.first_ms,
            now_ms,
            0 < park_at <= count,
            self._clock.monotonic() + pause_s,
        )
        self._found[part, subject] = found
        if len(self._found) > KEPT_COUNT_MAX:
            self._found.popitem(last=False)
        self.counts[(part,)] += 1
        was_parked = before is not None and before.parked
        _tell(found, error, is_first=before is None, was_parked=was_parked)
        self._on_defect(found, error)
        return found

    def forgive(self, part: str, subject: str) -> None:
        """Forget the thing's defects: its work succeeded, or is no longer this process's."""
        self._found.pop((part, subject), None)

    def forgive_all(self, part: str, which: Callable[[str], bool]) -> list[str]:
        """`forgive` every subject for which `which` is true; returns them."""
        gone = [subject for found, subject in self._found if found == part and which(subject)]
        for subject in gone:
            del self._found[part, subject]
        return gone

    def forgive_everything_but(self, part: str, subject: str) -> None:
        """Forget the defects of the subject's other parts."""
        for found in [one for one in self._found if one[1] == subject and one[0] != part]:
            del self._found[found]

    # --- containing ---------------------------------------------------------------------------

    @contextmanager
    def contained(self, part: str, subject: str, *, park_at: int = PARK_AT_COUNT) -> Iterator[None]:
        """Record a defect of the block instead of raising it; if the block succeeds, forget
        earlier ones."""
        try:
            with naming_defects(f"the {part}"):
                yield
        except Defect as defect:
            self.note(part, subject, defect, park_at=park_at)
        else:
            self.forgive(part, subject)

    async def attempt(self, part: str, subject: str, action: Callable[[], Awaitable[None]]) -> None:
        """Perform the action of one thing among many, unless it is parked or pauses after a
        defect."""
        found = self._found.get((part, subject))
        if found is not None and (found.parked or self._clock.monotonic() < found.again_s):
            return
        with self.contained(part, subject):
            await action()

    async def alone(self, what: str, work: Awaitable[None]) -> None:
        """Perform work that no caller waits for: a defect ends only this work."""
        with self.contained(JOB, what, park_at=0):
            await work

    async def keep(
        self, job: str, serve: Callable[[], Awaitable[None]], *ends: type[AnabranchError]
    ) -> None:
        """Run `serve` until it returns, restarting it after a pause whenever it raises.

        It must be safe to call again. Only the errors in `ends` are raised, because they end the
        process.
        """
        while True:
            began_s = self._clock.monotonic()
            try:
                await serve()
            except Exception as error:
                if _is_one_of(error, ends):
                    raise
                if self._clock.monotonic() - began_s >= RAN_WELL_S:
                    self.forgive(JOB, job)
                defect = as_defect("a job", error)
                defect.__cause__ = error
                found = self.note(JOB, job, defect, park_at=0)
            else:
                return
            await self._clock.sleep(max(0.0, found.again_s - self._clock.monotonic()))

    # --- queries ------------------------------------------------------------------------------

    def is_parked(self, part: str, subject: str) -> bool:
        """Whether the thing is parked."""
        found = self._found.get((part, subject))
        return found is not None and found.parked

    def require_not_parked(self, subject: str) -> None:
        """Raises Parked if a step or the fold of this aggregate is parked."""
        for part in (STEP, FOLD):
            if self.is_parked(part, subject):
                raise parked_error(subject, self._found[part, subject].error)

    def all(self) -> list[Contained]:
        """Every thing with defects, parked ones first, then by time."""
        return sorted(self._found.values(), key=lambda one: (not one.parked, one.first_ms))

    def parked_counts(self) -> dict[tuple[str, ...], float]:
        """The number of parked things, by part."""
        counts: dict[tuple[str, ...], float] = {(STEP,): 0.0, (FOLD,): 0.0}
        for found in self._found.values():
            if found.parked:
                counts[(found.part,)] = counts.get((found.part,), 0.0) + 1
        return counts

    def summary(self) -> str:
        """For readiness: the number of parked or recent defects, and the first one; empty
        without any."""
        since_ms = self._clock.now_ms() - int(RAN_WELL_S * 1000)
        found = [one for one in self.all() if one.parked or one.last_ms >= since_ms]
        if not found:
            return ""
        parked, first = sum(one.parked for one in found), found[0]
        return (
            f"{len(found)} with defects, {parked} of them parked, "
            f"first: {first.part} of {first.subject}: {first.error}"
        )


def parked_error(subject: str, why: str) -> Parked:
    """The refusal of a change of a parked aggregate."""
    name = aggregate_name(subject)
    return Parked(
        "a defect stopped the work on this aggregate, so controllers accept no change of it",
        remedy=f"update the controllers, then run `anabranch operation redrive {name}`",
        aggregate=name,
        cause=why,
    )


def aggregate_name(subject: str) -> str:
    """An aggregate as operators name it: its kind, and the names in its subject.

    ``ana.evt.3.stream.demo.one`` is ``stream:demo/one``; any other subject is returned unchanged.
    """
    if not subject.startswith(f"{EVENT_SUBJECT_PREFIX}."):
        return subject
    kind, *names = [part.replace("=", ".") for part in subject.split(".")[3:]]
    return f"{kind}:{'/'.join(names)}"


def _is_one_of(error: BaseException, kinds: tuple[type[AnabranchError], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_one_of(one, kinds) for one in error.exceptions)
    return isinstance(error, kinds)


def _tell(found: Contained, error: BaseException, *, is_first: bool, was_parked: bool) -> None:
    if is_first:
        _log.error(
            _TOLD.get(found.part, "a defect was contained, and its work will be retried"),
            part=found.part,
            subject=found.subject,
            error=found.error,
            exc_info=error.__cause__ or error,
        )
    if found.parked and not was_parked:
        _log.error(
            "a defect parked work",
            part=found.part,
            subject=found.subject,
            error=found.error,
            attempts=found.count,
            remedy=(
                "`anabranch operation parked` lists the work; update the controllers, then "
                "redrive it"
            ),
        )
