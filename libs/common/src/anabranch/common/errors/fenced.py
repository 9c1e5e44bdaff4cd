"""You, or the store you asked, are no longer the owner: look it up again."""

from anabranch.common.errors.families import Fenced


class Deposed(Fenced):
    """A newer owner exists; nothing more may be acknowledged or made visible."""

    code = "deposed"
    default_remedy = "stop; the newer owner serves"


class ProcessReplaced(Fenced):
    """Another process has announced itself under this one's id, later."""

    code = "process-replaced"
    default_remedy = "give every process an id of its own; of two with one id the later one stays"


class WrongHost(Fenced):
    """The store does not own the segment's container under the caller's epoch."""

    code = "wrong-host"
    default_remedy = "locate the segment again"
