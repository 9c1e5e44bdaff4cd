"""The request had no effect: wait and try again."""

from anabranch.common.errors.families import Retry
from anabranch.common.errors.remedy import Remedy


class Unavailable(Retry):
    """The container, store, controller or server exists but does not serve at the moment."""

    code = "unavailable"


class NotEnoughReplicas(Unavailable):
    """Fewer copies of the container's log are in sync than an acknowledgement needs. Fields:
    container, in_sync, needed."""

    code = "not-enough-replicas"
    default_remedy = Remedy(
        "wait until another replica has caught up, then try again",
        command="wait until another replica has caught up (`anabranch container list`), "
        "then try again",
    )


class LeaderOffline(Unavailable):
    """No store with an in-sync copy of the container's log answers. Fields: container."""

    code = "leader-offline"
    default_remedy = Remedy(
        "start a store that holds an in-sync copy",
        command="start a store that holds an in-sync copy: `anabranch container explain CONTAINER` "
        "names them",
    )


class Overloaded(Retry):
    """A bounded queue is full, and the request was not accepted. Fields: limit."""

    code = "overloaded"
    default_remedy = Remedy(
        "wait, then try again with less at once",
        http="wait for the seconds in Retry-After, then send less at once",
    )


class TooManyConnections(Retry):
    """A peer has reached its limit of connections. Fields: peer, limit."""

    code = "too-many-connections"
    default_remedy = Remedy("use one connection for many requests, or raise the limit per peer")


class BufferFull(Retry):
    """The writer's own buffer is full. Fields: used, limit."""

    code = "buffer-full"
    default_remedy = Remedy(
        "wait for acknowledgements, then write the event again",
        api="`await writer.drain()`, then write the event again",
    )


class Busy(Retry):
    """Another operation on the same object must end first."""

    code = "busy"
    default_remedy = Remedy(
        "wait for the other operation, then try again",
        api="wait for the other operation (`client.operations.list()`), then try again",
        http="wait for the other operation (`GET /v1/operations`), then try again",
        command="wait for the other operation (`anabranch operation list`), then try again",
    )


class DeadlinePassed(Retry):
    """The caller's deadline passed before the request's turn, so it was not performed."""

    code = "deadline-passed"
    default_remedy = Remedy("send the request again with a later deadline")


class ConnectionLost(Retry):
    """The connection to a server broke."""

    code = "connection-lost"


class PlanOutdated(Retry):
    """The data that a read was planned on is gone; the present data is not damaged."""

    code = "plan-outdated"
    default_remedy = Remedy("run the read again, which plans it anew")


class OutOfStorage(Retry):
    """The partitions that the store leads hold as much as its storage size permits, so it takes no
    records for topics. Fields: container, used, limit (both in bytes)."""

    code = "out-of-storage"
    default_remedy = Remedy(
        "delete topics, shorten their retention, or raise the storage size of the store; the store "
        "takes records again once 5 % of the storage size are free"
    )


class DiskFailed(Retry):
    """A write or sync failed; the store stops, because the content of the disk is uncertain."""

    code = "disk-failed"
    default_remedy = Remedy("check the disk and its free space, then start the store again")


class NoRoom(DiskFailed):
    """The disk has no space, or the process no free descriptor, so the new file does not exist.

    Unlike other failures of the disk this one leaves no doubt about stored data, so the store waits
    and tries again. If the write was to a file that already holds data, use `as_failure`.
    """

    code = "no-room"
    default_remedy = Remedy(
        "free space on the disk, or raise the limit of open files; the store continues by itself"
    )

    def as_failure(self) -> DiskFailed:
        """The same failure as DiskFailed, if stored data is in doubt or the store cannot go on."""
        failure = DiskFailed(self.message)
        failure.fields = self.fields
        return failure


class SyncFailed(DiskFailed):
    """A sync failed, so the effect of earlier writes is unknown, and the store ends."""

    code = "sync-failed"


class TopicNotProvisioned(Retry):
    """The topic exists, but not all of its partitions are online yet. Fields: topic, provisioned,
    partitions."""

    code = "topic-not-provisioned"
    default_remedy = Remedy(
        "wait until its partitions are online; the reason in the topic's status names the obstacle"
    )
