"""docs/wire.md says what the code does: messages, layouts, limits and errors."""

import ast
import re
from itertools import chain

from anabranch.common import errors
from anabranch.common.errors import ERRORS_BY_CODE, AnabranchError
from anabranch.common.wire import block, packet
from anabranch.segstore.handlers.append import SESSIONS_MAX
from anabranch.segstore.handlers.read import OUTSTANDING_MAX, WAIT_S_MAX
from anabranch.segstore.server.tcp import TcpLimits
from anabranch.segstore.shell.container.reader import READ_SIZE_BYTES_MAX
from kit.golden import read_golden
from tidy import wire_document
from tidy.source import ROOT

TEXT = wire_document.PATH.read_text()
SEGSTORE = ROOT / "services/segstore/src/anabranch/segstore"
ANSWERING = ("server", "handlers", "domain/container", "shell")
AT_HOME = {
    "binary-not-found", "invalid-setting", "port-in-use", "revision-conflict", "object-exists",
    "object-not-found", "process-replaced", "session-over", "log-not-synced",
}  # fmt: skip
"""What these folders raise and no client is told."""


def test_the_messages_are_those_of_the_code() -> None:
    assert wire_document.rendered(TEXT) == TEXT, "run make wire-doc and commit it"


def test_the_examples_in_hexadecimal_are_the_bytes_that_the_code_writes() -> None:
    found = re.findall(r"^```hex (\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert {name for name, _ in found} == {"packet_hello", "block_keys_timestamps"}
    for name, lines in found:
        told = b"".join(bytes.fromhex(line[:34]) for line in lines.splitlines())
        assert told.hex() == read_golden(name).hex(), name


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def fields_of(title: str) -> list[tuple[str, str]]:
    """(at, size) in the table of a section."""
    return re.findall(r"^\| (\d+) \| (\d+) \|", section(title), re.MULTILINE)


def test_the_layouts_are_those_of_the_code() -> None:
    for title, header in (
        ("Packets", packet.HEADER),
        ("Blocks", block.HEADER),
        ("Large events", block.LARGE_REFERENCE),
    ):
        at = 0
        for told_at, size in fields_of(title):
            assert int(told_at) == at, (title, told_at)
            at += int(size)
        assert at == header.size, title


def test_the_limits_are_those_of_the_code() -> None:
    limits = TcpLimits()
    for told in (
        f"at most {packet.PACKET_SIZE_BYTES_MAX - 4:,} |",
        f"at most {packet.META_SIZE_BYTES_MAX:,} |",
        f"| payload of an append | {block.BLOCK_SIZE_BYTES_MAX:,} bytes;",
        f"a routing key {block.KEY_SIZE_BYTES_MAX:,} bytes |",
        f"| connections to a store | {limits.connections_max:,};",
        f"| of these from one address | {limits.per_peer_max:,};",
        f"| time from a packet's first byte to its last one | {limits.packet_s:g} s;",
        f"| time until the client's `Hello` | {limits.hello_s:g} s |",
        f"| append sessions on a connection | {SESSIONS_MAX:,};",
        f"| reads under way on a connection | {OUTSTANDING_MAX:,};",
        f"| bytes that a read returns | {READ_SIZE_BYTES_MAX >> 20} MiB,",
        f"| wait of a read at the tail | {WAIT_S_MAX:g} s |",
        f"{limits.keep_alive_s:g} seconds, the client more often than every {limits.idle_s:g},",
        f"there is one version, {packet.PROTOCOL_VERSION}.",
    ):
        assert told in " ".join(TEXT.split()) or told in TEXT, told
    assert block.EVENT_SIZE_BYTES_MAX == 8 << 20
    assert block.LARGE_EVENT_SIZE_BYTES_MAX == 1 << 30
    assert block.PART_SIZE_BYTES_MAX == 4 << 20
    assert packet.PACKET_SIZE_BYTES_MAX == (16 << 20) + (64 << 10)
    assert packet.PROTOCOL_VERSION_OLDEST == packet.PROTOCOL_VERSION


def told_errors() -> dict[str, str]:
    return dict(re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \|", section("Errors"), re.MULTILINE))


def family_of(kind: type[AnabranchError]) -> str:
    return kind.__mro__[kind.__mro__.index(AnabranchError) - 1].__name__


def test_every_error_is_told_with_its_family() -> None:
    for code, family in told_errors().items():
        assert family_of(ERRORS_BY_CODE[code]) == family, code


def test_every_error_that_a_store_can_answer_with_is_told() -> None:
    raised = set()
    for path in chain(*(sorted((SEGSTORE / folder).glob("*.py")) for folder in ANSWERING)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "anabranch.common.errors":
                raised |= {getattr(errors, alias.name) for alias in node.names}
    codes = {kind.code for kind in raised if family_of(kind) != kind.__name__}
    assert codes - AT_HOME - {AnabranchError.code} <= told_errors().keys()
    assert len(codes) > 30
