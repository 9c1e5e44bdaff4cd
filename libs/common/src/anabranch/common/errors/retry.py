"""Wait and try again: nothing was done."""

from anabranch.common.errors.families import Retry


class Unavailable(Retry):
    """The container, store or controller exists but does not serve at the moment."""

    code = "unavailable"


class Overloaded(Retry):
    """A bounded queue is full; nothing was accepted."""

    code = "overloaded"


class TooManyConnections(Retry):
    """A peer has as many connections as one may have: fields {peer, limit}."""

    code = "too-many-connections"
    default_remedy = "use one connection for many requests, or raise the limit per peer"


class BufferFull(Retry):
    """The writer's own buffer is full."""

    code = "buffer-full"
    default_remedy = "await drain() before writing more"


class Busy(Retry):
    """Another operation on the same thing must end first."""

    code = "busy"


class DeadlinePassed(Retry):
    """Nobody waited any more when the request came up; it was refused and nothing was done."""

    code = "deadline-passed"
    default_remedy = "send the request again with a later deadline"


class ConnectionLost(Retry):
    """The connection to a server broke."""

    code = "connection-lost"


class PlanOutdated(Retry):
    """What a read was planned on is no longer there; what is there now is not damaged."""

    code = "plan-outdated"
    default_remedy = "run the read again, which plans it anew"


class DiskFailed(Retry):
    """A write or sync failed; the store stops rather than guess what reached the disk."""

    code = "disk-failed"
    default_remedy = "check the disk and its free space, then start the store again"


class NoRoom(DiskFailed):
    """No space on the disk, or no free file descriptor: the file to be made does not exist.

    Unlike any other failure of the disk this one leaves nothing uncertain, so the store waits and
    tries again. A write into a file that already holds data is uncertain all the same.
    """

    code = "no-room"
    default_remedy = (
        "free space on the disk, or raise the limit of open files; the store continues by itself"
    )

    def as_failure(self) -> DiskFailed:
        """The same where it leaves something uncertain, or nothing can go on without it."""
        failure = DiskFailed(self.message)
        failure.fields = self.fields
        return failure


class SyncFailed(DiskFailed):
    """A sync failed: what earlier writes left on the disk is not known, so the store ends."""

    code = "sync-failed"
