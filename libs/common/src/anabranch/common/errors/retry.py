"""The request had no effect: wait and try again."""

from anabranch.common.errors.families import Retry


class Unavailable(Retry):
    """The container, store or controller exists but does not serve at the moment."""

    code = "unavailable"


class Overloaded(Retry):
    """A bounded queue is full; the request was not accepted."""

    code = "overloaded"


class TooManyConnections(Retry):
    """A peer has reached its limit of connections: fields {peer, limit}."""

    code = "too-many-connections"
    default_remedy = "use one connection for many requests, or raise the limit per peer"


class BufferFull(Retry):
    """The writer's own buffer is full."""

    code = "buffer-full"
    default_remedy = "await drain() before writing more"


class Busy(Retry):
    """Another operation on the same object must end first."""

    code = "busy"


class DeadlinePassed(Retry):
    """The caller's deadline passed before the request's turn; the service did not perform it."""

    code = "deadline-passed"
    default_remedy = "send the request again with a later deadline"


class ConnectionLost(Retry):
    """The connection to a server broke."""

    code = "connection-lost"


class PlanOutdated(Retry):
    """The data that a read was planned on is gone; the present data is not damaged."""

    code = "plan-outdated"
    default_remedy = "run the read again, which plans it anew"


class DiskFailed(Retry):
    """A write or sync failed; the store stops, because the content of the disk is uncertain."""

    code = "disk-failed"
    default_remedy = "check the disk and its free space, then start the store again"


class NoRoom(DiskFailed):
    """The disk has no space, or the process no free descriptor: the new file does not exist.

    Unlike other failures of the disk this one leaves no doubt about stored data, so the store waits
    and tries again. If the write was to a file that already holds data, use `as_failure`.
    """

    code = "no-room"
    default_remedy = (
        "free space on the disk, or raise the limit of open files; the store continues by itself"
    )

    def as_failure(self) -> DiskFailed:
        """The same failure as DiskFailed, if stored data is in doubt or the store cannot go on."""
        failure = DiskFailed(self.message)
        failure.fields = self.fields
        return failure


class SyncFailed(DiskFailed):
    """A sync failed: the effect of earlier writes on the disk is unknown, so the store ends."""

    code = "sync-failed"
