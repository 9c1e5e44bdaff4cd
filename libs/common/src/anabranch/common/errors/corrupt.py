"""Stored or received bytes are damaged: an operator must act."""

from anabranch.common.errors.families import Corrupt
from anabranch.common.errors.remedy import Remedy

_VERIFY = "`anabranch tier2 verify` lists all damage; restore the damaged objects from a copy"


class CorruptBlock(Corrupt):
    """A block of events is damaged. Fields: segment, offset."""

    code = "corrupt-block"
    default_remedy = Remedy(
        "read the segment again; if it stays damaged, run `anabranch tier2 verify`"
    )


class CorruptJournal(Corrupt):
    """A file of a segment store's journal is damaged. Fields: file or path."""

    code = "corrupt-journal"
    default_remedy = Remedy(
        "stop the store and keep its files; `anabranch segstore repair DIRECTORY` shows the "
        "possible repairs"
    )


class JournalFileMissing(CorruptJournal):
    """A file that the journal refers to is not in its directory. Fields: file."""

    code = "journal-file-missing"
    default_remedy = Remedy(
        "put the file back unchanged; if it is lost, `anabranch segstore repair DIRECTORY` gives "
        "up its contents and those of all later files"
    )


class NodeIdMissing(Corrupt):
    """The data directory holds logs but no file `node-id`. Fields: path, journal."""

    code = "node-id-missing"
    default_remedy = Remedy(
        "restore the file `node-id` from a copy of the data directory; it never changes"
    )


class CorruptChunk(Corrupt):
    """A chunk in tier 2 is damaged or missing. Fields: name."""

    code = "corrupt-chunk"
    default_remedy = Remedy(_VERIFY)


class CorruptManifest(Corrupt):
    """A manifest, page or description in tier 2 is damaged or missing. Fields: name."""

    code = "corrupt-manifest"
    default_remedy = Remedy(_VERIFY)


class TierTwoRewound(Corrupt):
    """An outside party deleted the newest objects of tier 2. Fields: newest, receipt.

    Tier 2 holds a receipt of an object, but neither the object nor a newer one: `newest` is the
    newest present number, `receipt` the receipt's number.
    """

    code = "tier-two-rewound"
    default_remedy = Remedy(
        "restore the deleted objects of tier 2 from a copy; without a copy, docs/operations.md "
        "describes how to continue"
    )


class IndexDamaged(Corrupt):
    """The local index of a container's table segments is damaged. Fields: directory, cause.

    Nothing is lost: the log has every entry, and the store drops the index and builds a new one.
    """

    code = "index-damaged"
    default_remedy = Remedy(
        "wait, then try again: the store builds the index anew by itself; if it is damaged again, "
        "check the disk"
    )


class CorruptEvent(Corrupt):
    """A domain event is damaged, so work on its aggregate stops. Fields: subject, sequence."""

    code = "corrupt-event"
    default_remedy = Remedy(
        "`anabranch controller verify` lists the damage; "
        "`anabranch controller repair SUBJECT` shows the possible repairs"
    )


class CorruptBackup(Corrupt):
    """A file of a metadata backup is damaged or missing. Fields: name or file."""

    code = "corrupt-backup"
    default_remedy = Remedy("restore from another backup; the rest of this one cannot be trusted")


class StreamRewound(Corrupt):
    """A JetStream stream ends before a message that was read: it was replaced or restored."""

    code = "stream-rewound"
    default_remedy = Remedy("stop the service and find out how the stream's data was replaced")


class FormatTooNew(Corrupt):
    """A newer release wrote the data. Fields: found, supported."""

    code = "format-too-new"
    default_remedy = Remedy("start a release that knows this format; nothing was changed")
