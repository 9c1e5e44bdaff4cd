"""The edge at which the failure of one check, or of one part of a support bundle, ends.

Any error of the work becomes a `Problem` of that work alone, and the caller goes on with the next.
The problem is shown to the user, so nothing is hidden.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from anabranch.cli.doctor.finding import CannotLook
from anabranch.common.errors import AnabranchError

ACCESS_REMEDY = "run as the user that started the cluster, and check the path"
LATE_REMEDY = "try again; then look at the server that does not answer"
REPORT_REMEDY = "report it, with the file of `anabranch support-bundle`"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the work did not end. `out_of_reach`: for a reason that is no fault."""

    text: str
    remedy: str = ""
    out_of_reach: bool = False


async def problem_of(work: Callable[[], Awaitable[None]], seconds_max: float) -> Problem | None:
    """Do the work within its time; None if it ended."""
    try:
        async with asyncio.timeout(seconds_max):
            await work()
    except CannotLook as why:
        return Problem(str(why), why.remedy, out_of_reach=True)
    except TimeoutError:
        return Problem("there was no answer in time", LATE_REMEDY)
    except AnabranchError as error:
        return Problem(str(error), error.remedy_for("command"))
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        return Problem(f"{error.strerror or error}{place}", ACCESS_REMEDY)
    except Exception as error:  # noqa: BLE001 - told as the problem of this work alone
        return Problem(f"it failed unexpectedly: {type(error).__name__}: {error}", REPORT_REMEDY)
    return None
