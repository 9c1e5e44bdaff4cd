"""A part that fails is noted and the rest goes on; no document passes without redaction."""

import asyncio
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.support.anonymity import Anonymizer
from anabranch.cli.support.archive import RESERVED_BYTES, Archive
from anabranch.cli.support.bundle import MANIFEST, Bundle
from anabranch.cli.support.command import file_of
from anabranch.cli.support.document import Document, Part, many, single
from anabranch.cli.support.machine_parts import listed, own_settings
from anabranch.cli.support.redaction import Redactor
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import SystemClock

SECRET = "correct-horse-battery"
STREAMS = [{"why": "sensors of plant wait"}, {"scope": "plant", "stream": "sensors"}]


def part(name: str, *documents: Document, error: Exception | None = None) -> Part:
    async def gather() -> AsyncIterator[Document]:
        for document in documents:
            yield document
        if error is not None:
            raise error

    return Part(name, "about it", gather)


async def bundled(
    file: Path, *parts: Part, bytes_max: int = 20 * RESERVED_BYTES, anonymous: bool = False
) -> dict[str, str]:
    """The documents of a bundle of these parts, by path."""
    anonymizer = Anonymizer(b"salt") if anonymous else None
    with Archive(file, folder="x", bytes_max=bytes_max, now_s=1) as archive:
        bundle = Bundle(archive, Redactor([SECRET]), anonymizer, SystemClock(), seconds_max=5.0)
        await bundle.gather(parts)
        bundle.add_manifest({"format": 1})
        archive.finish()
    return contents(file)


def contents(file: Path) -> dict[str, str]:
    with tarfile.open(file) as found:
        members = {one.name.partition("/")[2]: found.extractfile(one) for one in found}
        return {name: one.read().decode() for name, one in members.items() if one is not None}


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (CannotLook("no Redis server is known", "name it"), "no Redis server is known"),
        (Unavailable("no answer", url="u"), "no answer (url=u)"),
        (ZeroDivisionError("surprise"), "it failed unexpectedly: ZeroDivisionError: surprise"),
    ],
)
async def test_a_part_that_fails_is_noted_and_what_came_before_stays(
    tmp_path: Path, error: Exception, why: str
) -> None:
    broken = part("broken", single("one.json", {"a": 1}), error=error)
    found = await bundled(tmp_path / "b", broken, part("next", many("two.jsonl", [{"b": 2}])))
    assert json.loads(found["one.json"]) == {"a": 1}
    assert json.loads(found["two.jsonl"]) == {"b": 2}
    manifest = json.loads(found[MANIFEST])
    assert [(one["part"], one["why"]) for one in manifest["missing"]] == [("broken", why)]
    assert [one["path"] for one in manifest["documents"]] == ["one.json", "two.jsonl"]


async def test_a_part_that_hangs_ends_with_the_time_of_the_bundle(tmp_path: Path) -> None:
    async def hang() -> AsyncIterator[Document]:
        await asyncio.Event().wait()
        yield single("never", {})

    with Archive(tmp_path / "b", folder="x", bytes_max=2 * RESERVED_BYTES, now_s=1) as archive:
        bundle = Bundle(archive, Redactor(), None, SystemClock(), seconds_max=0.001)
        await bundle.gather([Part("slow", "", hang), part("late", single("late.json", {}))])
        archive.finish()
    assert bundle.gathered.missing[0].why == "there was no answer in time"


async def test_a_document_that_is_too_large_is_noted_and_the_next_one_fits(tmp_path: Path) -> None:
    large = part("log", Document("large.log", "log", text="x" * RESERVED_BYTES))
    small = part("log", Document("small.log", "log", text="y"))
    found = await bundled(tmp_path / "b", large, small, bytes_max=RESERVED_BYTES + 50_000)
    assert sorted(found) == [MANIFEST, "small.log"]
    missing = json.loads(found[MANIFEST])["missing"]
    assert "large.log exceeds the size" in missing[0]["why"]


async def test_no_document_of_any_kind_passes_without_redaction(tmp_path: Path) -> None:
    text = f"it failed with {SECRET}"
    parts = (
        part("json", single("a.json", {"why": text, SECRET: 1})),
        part("lines", many("b.jsonl", [{"why": text}])),
        part("text", Document("c.txt", "text", text=text)),
        part("log", Document("d.log", "log", text=text)),
        part("broken", error=ZeroDivisionError(text)),
    )
    for anonymous in (False, True):
        found = await bundled(tmp_path / f"b{anonymous}", *parts, anonymous=anonymous)
        assert len(found) == 5
        assert SECRET not in str(found)
        assert json.loads(found[MANIFEST])["redacted"] >= 5


async def test_names_are_hashed_alike_in_lists_logs_and_the_manifest(tmp_path: Path) -> None:
    parts = (
        part("streams", many("streams.jsonl", STREAMS)),
        part("log", Document("x.log", "log", text='{"event": "e", "error": "plant/sensors"}')),
        part("broken", error=Unavailable("no store serves plant/sensors")),
    )
    found = await bundled(tmp_path / "b", *parts, anonymous=True)
    assert "plant" not in str(found)
    assert "sensors" not in str(found)
    names = json.loads(found["streams.jsonl"].splitlines()[1])
    assert f"{names['scope']}/{names['stream']}" in found["x.log"]
    assert f"{names['scope']}/{names['stream']}" in found[MANIFEST]


def test_variables_are_shown_without_those_that_hold_secrets() -> None:
    found = own_settings(
        {"ANABRANCH_A": "1", "ANABRANCH_X_PASSWORD": SECRET, "HOME": "/h", "X_TOKEN": SECRET}
    )
    assert found == {"ANABRANCH_A": "1", "ANABRANCH_X_PASSWORD": "***"}


def test_files_are_listed_by_name_and_size_without_their_contents(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "x.log").write_text(SECRET)
    (tmp_path / "link").symlink_to("/etc")
    lines, cut = listed(tmp_path)
    assert not cut
    assert [line.rstrip().split("\t")[3] for line in lines[1:]] == ["link", "logs", "logs/x.log"]
    assert lines[3].split("\t")[1] == str(len(SECRET))


def test_the_file_is_named_by_its_time_unless_it_has_a_name(tmp_path: Path) -> None:
    name = "anabranch-support-20231114T221320Z.tar.gz"
    assert file_of(None, 1_700_000_000_000) == Path(name).absolute()
    assert file_of(tmp_path, 1_700_000_000_000) == tmp_path / name
    assert file_of(tmp_path / "b.tar.gz", 0) == tmp_path / "b.tar.gz"
