"""Checks a store's settings before anything is opened, and derives limits from them."""

from anabranch.common.errors import InvalidSetting
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.addresses import parse_bind
from anabranch.common.storage.location import DirectoryLocation, MemoryLocation, parse_location
from anabranch.segstore.adapters.journal.journal import FILE_SIZE_BYTES_DEFAULT
from anabranch.segstore.server.tcp import TcpLimits
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from anabranch.segstore.wiring.log import JOURNAL_DIRECTORY

EVERY_ADDRESS = ("0.0.0.0", "::")
JOURNAL_FILES_MIN = 4
"""The journal may always use this many files: with fewer, flushes could not free files in time."""


def check_settings(settings: SegstoreSettings) -> None:
    """Compare the settings with each other, and with the data directory, which this only reads.

    Raises InvalidSetting.
    """
    tier_two = parse_location(settings.tier2)
    in_memory = isinstance(tier_two, MemoryLocation)
    if in_memory != (settings.journal == "memory"):
        raise InvalidSetting(
            "journal and tier 2 must both be durable, or both be in memory",
            remedy="for a store that keeps nothing set ANABRANCH_SEGSTORE_JOURNAL=memory and "
            "ANABRANCH_SEGSTORE_TIER2_URL=memory:",
            journal=settings.journal,
            tier2=settings.tier2,
        )
    in_directory = isinstance(tier_two, DirectoryLocation)
    outlives = settings.journal in ("jetstream", "replicated")
    if outlives and in_directory and settings.tier2_loss == "refused":
        raise InvalidSetting(
            "the containers' logs outlive this machine, but tier 2 is in a directory",
            remedy="set ANABRANCH_SEGSTORE_TIER2_URL to an object store; if the directory is on "
            "storage that all stores share, or its loss is acceptable, set "
            "ANABRANCH_SEGSTORE_TIER2_LOSS=accepted",
            tier2=settings.tier2,
        )
    host = parse_bind(settings.peer_bind)[0]
    if settings.journal == "replicated" and host in EVERY_ADDRESS and not settings.peer_advertise:
        raise InvalidSetting(
            "other stores need an address of this machine, and the store listens on all",
            remedy="set ANABRANCH_SEGSTORE_PEER_ADVERTISE to host:port as other stores reach it",
            peer_bind=settings.peer_bind,
        )
    has_journal = settings.journal in ("disk", "replicated")
    if not has_journal and (settings.data_dir.expanduser() / JOURNAL_DIRECTORY).exists():
        raise InvalidSetting(
            "the data directory holds a journal, which a store without one would not read",
            remedy="set ANABRANCH_SEGSTORE_JOURNAL to disk or replicated, as it was, or name "
            "another directory",
            data_dir=str(settings.data_dir),
        )


def throttle_limits(settings: SegstoreSettings) -> ThrottleLimits:
    """One setting bounds the bytes that tier 2 lacks, and with them the bytes that a start
    reads."""
    untiered = settings.untiered_bytes_max
    return ThrottleLimits(
        untiered=untiered, journal=max(untiered, JOURNAL_FILES_MIN * FILE_SIZE_BYTES_DEFAULT)
    )


def tcp_limits(settings: SegstoreSettings) -> TcpLimits:
    """The limits of connections."""
    return TcpLimits(
        connections_max=settings.connections_max,
        per_peer_max=settings.connections_per_peer_max,
        packet_s=settings.packet_s_max,
        unfinished_max=settings.unfinished_bytes_max,
    )


def advertised(settings: SegstoreSettings, bound: Endpoint) -> Endpoint:
    """The endpoint that the store announces to clients. Port 0 stands for the port it listens
    on."""
    return _announced(settings.advertise, bound)


def peer_advertised(settings: SegstoreSettings, bound: Endpoint) -> Endpoint:
    """The endpoint that the store announces to other stores. Port 0 as for clients."""
    return _announced(settings.peer_advertise, bound)


def _announced(address: str, bound: Endpoint) -> Endpoint:
    if not address:
        return bound
    host, port = parse_bind(address)
    return Endpoint(host, port or bound.port)
