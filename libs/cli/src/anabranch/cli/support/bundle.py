"""Gathers the parts of a bundle one after the other into an archive, and writes the manifest.

Each part has a deadline, and all together have one. A part that fails is missing alone, and the
manifest says why. Documents that came before the error stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.cli.doctor.problem import problem_of
from anabranch.cli.support.anonymity import Anonymizer
from anabranch.cli.support.archive import Archive
from anabranch.cli.support.document import Document, Part, encoded, single
from anabranch.cli.support.redaction import Redactor
from anabranch.common.runtime.clock import Clock

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Missing:
    """A part that could not be gathered, and the reason."""

    part: str
    why: str
    remedy: str = ""


@dataclass(slots=True)
class Gathered:
    """The documents in the bundle, and the parts that are missing."""

    documents: list[dict[str, object]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)


class Bundle:
    """One bundle. `seconds_max`: the time for all parts together."""

    def __init__(
        self,
        archive: Archive,
        redactor: Redactor,
        anonymizer: Anonymizer | None,
        clock: Clock,
        *,
        seconds_max: float,
    ) -> None:
        self._archive = archive
        self._redactor = redactor
        self._anonymizer = anonymizer
        self._clock = clock
        self._seconds_max = seconds_max
        self.gathered = Gathered()

    async def gather(self, parts: Sequence[Part]) -> None:
        """Gather the parts in order. Raises NoRoom, DirectoryUnusable if the file fails."""
        deadline_s = self._clock.monotonic() + self._seconds_max
        for part in parts:
            left_s = deadline_s - self._clock.monotonic()
            for document in await self._documents(part, min(part.seconds_max, left_s)):
                self._add(part, document)

    def add_manifest(self, about: dict[str, object]) -> None:
        """Add the list of everything in the bundle. It has room of its own."""
        shown = self._anonymizer.text if self._anonymizer is not None else str
        found = {
            **{name: shown(one) if isinstance(one, str) else one for name, one in about.items()},
            "redacted": self._redactor.count,
            "anonymous": self._anonymizer is not None,
            "documents": self.gathered.documents,
            "missing": [
                {"part": one.part, "why": shown(one.why), "remedy": shown(one.remedy)}
                for one in self.gathered.missing
            ],
        }
        content = encoded(single(MANIFEST, found), self._redactor, None)
        self._archive.add(MANIFEST, content, reserved=True)

    def _add(self, part: Part, document: Document) -> None:
        content = encoded(document, self._redactor, self._anonymizer)
        if not self._archive.add(document.path, content):
            self._miss(part, f"{document.path} exceeds the size of the bundle", "use --max-size")
            return
        entry = {"path": document.path, "part": part.name, "bytes": len(content)}
        note = {"note": document.note} if document.note else {}
        self.gathered.documents.append({**entry, "about": part.about, **note})

    async def _documents(self, part: Part, seconds_max: float) -> list[Document]:
        """The part's documents; those before an error stay."""
        found: list[Document] = []

        async def gather() -> None:
            async for document in part.gather():
                found.append(document)  # noqa: PERF401 - one by one, to keep those before an error

        problem = await problem_of(gather, seconds_max)
        if problem is not None:
            self._miss(part, problem.text, problem.remedy)
        return found

    def _miss(self, part: Part, why: str, remedy: str = "") -> None:
        self.gathered.missing.append(Missing(part.name, why, remedy))
