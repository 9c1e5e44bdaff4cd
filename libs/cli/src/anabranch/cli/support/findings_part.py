"""The part with the findings of all checks."""

import io
from collections.abc import AsyncIterator

from anabranch.cli.doctor.examination import examine
from anabranch.cli.doctor.showing import show
from anabranch.cli.doctor.sight import Sight
from anabranch.cli.output import Form, Output
from anabranch.cli.support.document import Document, Part, many
from anabranch.common.runtime.clock import Clock

FINDINGS_S_MAX = 90.0
"""If several servers hang, each costs some seconds."""


def findings_part(sight: Sight, clock: Clock) -> Part:
    """The findings, for programs and as `anabranch doctor` shows them."""

    async def gather() -> AsyncIterator[Document]:
        found = await examine(sight.checks, clock)
        yield many("doctor.jsonl", (each.record for each in found))
        shown = io.StringIO()
        show(Output(Form.TABLE, shown), found)
        yield Document("doctor.txt", "text", text=shown.getvalue())

    return Part("doctor", "the findings of all checks", gather, FINDINGS_S_MAX)
