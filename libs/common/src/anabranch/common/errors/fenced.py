"""The caller, or the store asked, is no longer the owner: look up the owner again."""

from anabranch.common.errors.families import Fenced


class Deposed(Fenced):
    """A newer owner exists; nothing more may be acknowledged or made visible."""

    code = "deposed"
    default_remedy = "stop this process; the newer owner serves"


class ProcessReplaced(Fenced):
    """Another process has announced itself later under this process's id."""

    code = "process-replaced"
    default_remedy = "give every process a unique id; of two with the same id, the later one stays"


class WrongHost(Fenced):
    """The store does not own the segment's container under the caller's epoch."""

    code = "wrong-host"
    default_remedy = "locate the segment again"


class ReaderRemoved(Fenced):
    """Other readers found this reader dead, or a caller has set it offline."""

    code = "reader-removed"
    default_remedy = "open the reader again; it repeats the events after its last saved position"


class ReaderGroupReset(Fenced):
    """The group began a new generation, or ended, while this reader was reading."""

    code = "reader-group-reset"
    default_remedy = "open the reader again; it starts at the group's new position"
