"""The caller, or the store asked, is no longer the owner: look up the owner again."""

from anabranch.common.errors.families import Fenced
from anabranch.common.errors.remedy import Remedy


class Deposed(Fenced):
    """A newer owner exists, so nothing more may be acknowledged or made visible."""

    code = "deposed"
    default_remedy = Remedy("stop this process; the newer owner serves")


class ProcessReplaced(Fenced):
    """Another process announced itself later under this process's id."""

    code = "process-replaced"
    default_remedy = Remedy(
        "give every process an id of its own; of two with the same id, the later stays"
    )


class SessionOver(Fenced):
    """A controller declared the store dead and ended its session. Fields: session."""

    code = "session-over"
    default_remedy = Remedy(
        "find out why the store was silent; it opens its containers again under another session"
    )


class WrongHost(Fenced):
    """The store does not own the segment's container under the caller's epoch."""

    code = "wrong-host"
    default_remedy = Remedy("locate the segment again")


class ReaderRemoved(Fenced):
    """Other readers found this reader dead, or a caller set it offline. Fields: reader."""

    code = "reader-removed"
    default_remedy = Remedy(
        "open the reader again; it repeats the events after its last saved position",
        http="request the group's events again; those after the last acknowledged one are repeated",
        command="run the command again; it repeats the events after the last saved position",
    )


class ReaderGroupReset(Fenced):
    """The group was reset or deleted while this reader was reading. Fields: generation."""

    code = "reader-group-reset"
    default_remedy = Remedy(
        "open the reader again; it starts at the group's new position",
        http="request the group's events again; they start at its new position",
        command="run the command again; it starts at the group's new position",
    )
