"""The `anabranch` program as a process, against a fake controller and store."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts.membership import Hold
from anabranch.common.runtime.nats_target import nats_target
from kit.command_line import CommandLine, Ended
from kit.fake_controller import FakeController
from kit.fake_segstore import FakeSegmentStore
from kit.nats_controller import nats_controller

DEADLINE_S = 20


@dataclass
class Shell:
    """Runs commands on a cluster; `directory` holds the cluster's endpoints.json."""

    directory: Path
    output: pytest.CaptureFixture[str]

    async def start(
        self, *arguments: str, stdout: int = asyncio.subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        """As a process of its own."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "anabranch.cli",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "ANABRANCH_DATA_DIR": str(self.directory),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )

    async def run(self, *arguments: str, given: bytes | None = None) -> Ended:
        """The same in this process, to save the start of another one; `given` is a file."""
        if given is not None:
            (self.directory / "given").write_bytes(given)
            arguments = (*arguments[:2], str(self.directory / "given"), *arguments[2:])
        return await CommandLine(self.output).run(*arguments, "--data-dir", str(self.directory))


@asynccontextmanager
async def shell(
    url: str, directory: Path, output: pytest.CaptureFixture[str], hold: Hold | None = None
) -> AsyncIterator[Shell]:
    (directory / "endpoints.json").write_text(json.dumps({"nats": url}))
    async with FakeSegmentStore() as store:
        connection = await connect_nats(nats_target(url), "fake controller")
        try:
            async with nats_controller(FakeController(store, hold=hold), connection):
                with capture_logs():  # the program sends them to stderr
                    yield Shell(directory, output)
        finally:
            await connection.close()


async def test_a_stream_is_created_written_read_sealed_and_deleted(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = b"tail,from\nN1,EWR\nN2,JFK\nN1,LGA\n"
    (tmp_path / "flights.csv").write_bytes(rows)
    async with shell(nats_url, tmp_path, capsys) as sh:
        assert (await sh.run("scope", "create", "a")).out == "created scope a\n"
        created = await sh.run("stream", "create", "a/b", "--segments", "2", "--json")
        assert json.loads(created.out) == {"created": "a/b", "segments": 2}
        shown = await sh.run("stream", "segments", "a/b", "--rates", "--json")
        rates = [json.loads(line)["rate"] for line in shown.out.splitlines()]
        assert [rate and rate["events_per_s"] for rate in rates] == [12.5, None]
        assert "unknown" in (await sh.run("stream", "segments", "a/b", "--rates")).out
        written = await sh.run(
            *("write", "a/b", str(tmp_path / "flights.csv"), "--format", "csv"),
            *("--key-field", "tail", "--compress", "zstd", "--json"),
        )
        assert json.loads(written.out)["events"] == 3
        read = await sh.run("read", "a/b", "--json")
        events = [json.loads(line) for line in read.out.splitlines()]
        assert [json.loads(e["payload"])["from"] for e in events if e["key"] == "N1"] == [
            "EWR",
            "LGA",
        ]
        assert len((await sh.run("read", "a/b", "-n", "2")).out.splitlines()) == 2
        refused = await sh.run("stream", "delete", "a/b")
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.startswith("error: the stream is not sealed")
        await sh.run("stream", "seal", "a/b")
        described = await sh.run("stream", "describe", "a/b", "--json")
        assert json.loads(described.out)["state"] == "sealed"
        sealed = await sh.run("write", "a/b", "--json", given=b"x\n")
        assert (sealed.code, sealed.error["code"]) == (1, "stream-sealed")
        assert (await sh.run("stream", "list", "a")).out == "a/b\n"
        await sh.run("stream", "delete", "a/b")
        missing = await sh.run("read", "a/b", "--json")
        assert (missing.code, missing.error["code"]) == (1, "stream-not-found")


async def test_the_containers_are_listed_and_flushed(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        listed = await sh.run("container", "list")
        assert "CONTAINER" in listed.out
        assert "127.0.0.1:" in listed.out
        (one,) = (await sh.run("container", "list", "--json")).out.splitlines()
        assert json.loads(one)["state"] == "open"
        assert (await sh.run("segstore", "flush")).out == "flushed 1 container to tier 2\n"
        flushed = await sh.run("segstore", "flush", "--timeout", "5", "--json")
        assert json.loads(flushed.out) == {"flushed": [0]}
        refused = await sh.run("segstore", "flush", "--timeout", "0", "--json")
        assert (refused.code, refused.error["code"]) == (1, "invalid-request")


async def test_following_shows_lines_as_they_come_until_ctrl_c(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        await sh.run("scope", "create", "f")
        await sh.run("stream", "create", "f/s")
        reader = await sh.start("read", "f/s", "-f")
        writer = await sh.start("write", "f/s")
        assert reader.stdout is not None
        assert writer.stdin is not None
        async with asyncio.timeout(DEADLINE_S):
            for line in (b"one\n", b"two\n"):
                writer.stdin.write(line)
                assert await reader.stdout.readline() == line
            for process in (reader, writer):
                process.send_signal(signal.SIGINT)
                _, err = await process.communicate()
                assert (process.returncode, err) == (130, b"")


async def test_a_reader_whose_output_is_closed_ends_quietly(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        await sh.run("scope", "create", "p")
        await sh.run("stream", "create", "p/s")
        await sh.run("write", "p/s", given=b"x" * 100_000 + b"\n")
        read, write = os.pipe()
        os.close(read)
        process = await sh.start("read", "p/s", stdout=write)
        os.close(write)
        async with asyncio.timeout(DEADLINE_S):
            _, err = await process.communicate()
        assert (process.returncode, err) == (141, b"")


async def test_input_that_cannot_be_used_is_named(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        await sh.run("scope", "create", "i")
        await sh.run("stream", "create", "i/s")
        nowhere = await sh.run("write", "i/s", str(tmp_path / "nothing"), "--json")
        assert (nowhere.code, nowhere.error["code"]) == (1, "invalid-request")
        wrong = await sh.run("write", "i/s", "--format", "json", "--json", given=b"{}\nno\n")
        assert wrong.error["fields"] == {"line": 2}
        assert (await sh.run("read", "i/s")).out == "{}\n"
        named = await sh.run("stream", "create", "no slash", "--json")
        assert named.error["code"] == "invalid-name"


async def test_events_keep_their_keys_and_bytes_from_one_stream_to_another(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames, keyed = tmp_path / "frames", tmp_path / "keyed"
    events = [b"", b"\xff\0\n", b"\r", b"x" * 100_000]
    async with shell(nats_url, tmp_path, capsys) as sh:
        await sh.run("scope", "create", "k")
        for name in ("k/one", "k/two", "k/three"):
            await sh.run("stream", "create", name, "--segments", "2")
        framed = b"".join(len(event).to_bytes(4, "big") + event for event in events)
        written = await sh.run("write", "k/one", "--format", "length", "--key", "a", given=framed)
        assert written.out == "wrote 4 events to k/one\n"
        await sh.run("read", "k/one", "-o", "length", "--file", str(frames))
        assert frames.read_bytes() == framed

        lines = b"a\t1\r\nb\t2\n\t3\na\t4\n"
        await sh.run("write", "k/two", "--key-separator", r"\t", "--batch", "2", given=lines)
        await sh.run("read", "k/two", "--format", r"{key}\t{payload}\n", "--file", str(keyed))
        await sh.run("write", "k/three", str(keyed), "--key-separator", r"\t")
        copied = await sh.run("read", "k/three", "--format", r"{stream} {key}={payload_base64}\n")
        assert sorted(copied.out.splitlines()) == [
            "k/three =Mw==", "k/three a=MQ0=", "k/three a=NA==", "k/three b=Mg==",
        ]  # fmt: skip


async def test_a_read_continues_at_a_position_that_it_printed(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        await sh.run("scope", "create", "c")
        await sh.run("stream", "create", "c/s", "--segments", "2")
        await sh.run("write", "c/s", "--key", "k", given=b"0\n1\n2\n3\n4\n")
        placed = await sh.run("read", "c/s", "--format", r"{payload} {position}\n")
        after = dict(line.split() for line in placed.out.splitlines())
        assert (await sh.run("read", "c/s", "--from", after["2"])).out == "3\n4\n"
        between = await sh.run("read", "c/s", "--from", after["0"], "--until", after["2"])
        assert between.out == "1\n2\n"
        foreign = await sh.run("read", "c/s", "--from", "x" * 40, "--json")
        assert (foreign.code, foreign.error["code"]) == (1, "invalid-request")


async def test_events_are_read_into_files_of_columns_and_as_documents(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        await sh.run("scope", "create", "p")
        await sh.run("stream", "create", "p/s")
        await sh.run("write", "p/s", "--key-separator", ":", given=b"k:one\n:two\n")
        file = tmp_path / "events.parquet"
        assert (await sh.run("read", "p/s", "-o", "parquet", "--file", str(file))).out == ""
        assert pq.read_table(file).select(["payload", "key"]).to_pylist() == [
            {"payload": b"one", "key": "k"},
            {"payload": b"two", "key": None},
        ]
        await sh.run("read", "p/s", "-n", "1", "-o", "arrow", "--file", str(file))
        assert pa.ipc.open_stream(file.read_bytes()).read_all().num_rows == 1
        documents = (await sh.run("read", "p/s", "-o", "yaml")).out.split("---\n")
        assert [text.splitlines()[0] for text in documents[1:]] == ["payload: one", "payload: two"]
        table = (await sh.run("read", "p/s", "-o", "table")).out.splitlines()
        assert [line.split()[-1] for line in table] == ["PAYLOAD", "one", "two"]
        nowhere = await sh.run("read", "p/s", "--file", str(tmp_path / "no" / "file"))
        assert (nowhere.code, nowhere.out) == (1, "")
        assert "cannot be written" in nowhere.err
        gone = await sh.run("read", "p/gone", "--file", str(file))
        assert gone.code == 1
        assert file.stat().st_size > 0


async def test_a_wrong_event_is_named_and_those_before_it_are_durable(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        await sh.run("scope", "create", "w")
        await sh.run("stream", "create", "w/s")
        no_key = ("write", "w/s", "--key-separator", ":", "--json")
        wrong = await sh.run(*no_key, given=b"k:1\n2\nk:3\n")
        assert (wrong.code, wrong.error["fields"]) == (1, {"line": 2, "separator": "':'"})
        large = await sh.run("write", "w/s", "--json", given=b"2\n" + bytes(9_000_000) + b"\n")
        assert large.error["code"] == "event-too-large"
        assert large.error["fields"]["line"] == 2
        ended = await sh.run("write", "w/s", "--format", "length", "--json", given=b"\0\0\0\x013\0")
        assert ended.error["fields"] == {"event": 2}
        assert (await sh.run("read", "w/s")).out == "1\n2\n3\n"


async def test_containers_are_moved_enabled_and_abandoned_only_with_a_yes(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        stores = await sh.run("segstore", "list", "--json")
        assert [json.loads(line)["node_id"] for line in stores.out.splitlines()] == [
            "fake",
            "other",
        ]
        moved = await sh.run("container", "move", "0", "--to", "other", "--wait")
        assert moved.out == "container 0 is open on other\n"
        unknown = await sh.run("container", "move", "0", "--to", "nobody", "--json")
        assert (unknown.code, unknown.error["code"]) == (1, "node-not-found")
        asked = await sh.run("container", "abandon-tail", "0", "--to", "fake")
        assert asked.code == 1
        assert "loses them for good" in asked.out
        listed = await sh.run("container", "list", "--json")
        assert json.loads(listed.out)["node_id"] == "other", "nothing was done"
        done = await sh.run("container", "abandon-tail", "0", "--to", "fake", "--yes")
        assert (done.code, done.out) == (0, "container 0 is open on fake\n")
        enabled = await sh.run("container", "enable", "0", "--json")
        assert json.loads(enabled.out)["container"] == 0
        unpinned = await sh.run("container", "unpin", "0", "--json")
        assert json.loads(unpinned.out)["container"] == 0
        changed = await sh.run("container", "replicas", "set", "0", "other,fake")
        assert changed.out == "container 0 is open on other\n"
        asked = await sh.run("container", "elect", "0", "--yes")
        assert asked.code == 1
        assert "lost for good" in asked.out
        done = await sh.run("container", "elect", "0", "--unclean", "--yes", "--store", "fake")
        assert (done.code, done.out) == (0, "container 0 is open on fake\n")


async def test_stores_are_drained_and_watched_until_no_container_is_left(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        begun = await sh.run("spu", "drain", "fake", "--no-wait")
        assert begun.out == "fake is draining: 0 containers left\n"
        late = await sh.run("spu", "drain", "fake", "--timeout", "0.1")
        assert (late.code, late.out) == (1, "")
        assert late.err.startswith("1 container left\nerror: the store has containers left")
        listed = await sh.run("spu", "list", "--json")
        assert [json.loads(line)["draining"] for line in listed.out.splitlines()] == [True, False]
        empty = await sh.run("spu", "drain", "other")
        assert empty.out.startswith("other has no container left; it gets none until")
        for node in ("fake", "other"):
            ended = await sh.run("spu", "undrain", node)
            assert ended.out == f"{node} may have containers again\n"
        people = (await sh.run("spu", "list")).out.splitlines()
        assert [line.split()[7:10] for line in people[1:]] == [["alive", "journal", "no"]] * 2
        unknown = await sh.run("spu", "drain", "nobody", "--json")
        assert (unknown.code, unknown.error["code"]) == (1, "node-not-found")


async def test_a_container_is_explained(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        told = await sh.run("container", "explain", "0")
        assert told.out == "container 0 is open on fake\n- fake serves it\n"
        record = json.loads((await sh.run("container", "explain", "0", "--json")).out)
        assert (record["container"]["container"], record["reasons"]) == (0, ["fake serves it"])
        unknown = await sh.run("container", "explain", "9")
        assert unknown.code == 1


async def test_a_drain_that_is_interrupted_stays_on(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        drain = await sh.start("spu", "drain", "fake")
        assert drain.stderr is not None
        assert await drain.stderr.readline() == b"1 container left\n"
        drain.send_signal(signal.SIGINT)
        _, told = await asyncio.wait_for(drain.communicate(), DEADLINE_S)
        assert b"fake is still draining; `anabranch spu undrain fake` ends that" in told
        assert drain.returncode == 130
        listed = await sh.run("spu", "list", "--json")
        assert json.loads(listed.out.splitlines()[0])["draining"]


async def test_the_members_of_the_cluster_are_shown(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(nats_url, tmp_path, capsys) as sh:
        shown = (await sh.run("cluster", "show")).out
        for told in ("fake (term 3)", "1 of 2 alive", "2 of 2 alive", "1 open", "nothing"):
            assert told in shown
        assert "fake: 0; nobody: 1" in shown, "the buckets"
        listed = (await sh.run("cluster", "controllers", "--json")).out.splitlines()
        assert [json.loads(line)["leader"] for line in listed] == [True, False]
        people = (await sh.run("cluster", "controllers")).out
        assert "alive" in people
        assert "down" in people
        stores = (await sh.run("cluster", "stores", "--json")).out.splitlines()
        assert [json.loads(line)["node_id"] for line in stores] == ["fake", "other"]
        none = await sh.run("cluster", "confirm-losses", "--yes")
        assert (none.code, none.out) == (0, "no hold is active\n")


async def test_losses_are_confirmed_only_with_a_yes(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = Hold(reason="losses", since_ms=1_700_000_000_000, stores=("a", "b"))
    async with shell(nats_url, tmp_path, capsys, hold) as sh:
        shown = (await sh.run("cluster", "show", "--json")).out
        assert json.loads(shown)["hold"]["stores"] == ["a", "b"]
        people = (await sh.run("cluster", "show")).out
        assert "missing a, b" in people
        asked = await sh.run("cluster", "confirm-losses")
        assert asked.code == 1
        assert asked.out.startswith("missing: a, b\n")
        assert (await sh.run("cluster", "show", "--json")).out == shown, "nothing was done"
        done = await sh.run("cluster", "confirm-losses", "--yes")
        assert (done.code, done.out) == (0, "confirmed as gone: a, b\n")
        assert json.loads((await sh.run("cluster", "show", "--json")).out)["hold"] is None


async def test_a_blind_controller_is_told_of_no_losses(
    nats_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = Hold(reason="blind", since_ms=1_700_000_000_000)
    async with shell(nats_url, tmp_path, capsys, hold) as sh:
        refused = await sh.run("cluster", "confirm-losses", "--yes", "--json")
        assert (refused.code, refused.error["code"]) == (1, "unavailable")
