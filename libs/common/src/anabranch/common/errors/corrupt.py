"""Stored or received bytes are damaged: an operator must look."""

from anabranch.common.errors.families import Corrupt


class CorruptBlock(Corrupt):
    code = "corrupt-block"


class CorruptJournal(Corrupt):
    code = "corrupt-journal"
    default_remedy = (
        "stop the store, keep the files unchanged, inspect them with `anabranch segstore "
        "journal`; `anabranch segstore repair` shows the possible repairs"
    )


class JournalFileMissing(CorruptJournal):
    """The journal knows of a file that is not in its directory: fields {file}."""

    code = "journal-file-missing"
    default_remedy = (
        "put the file back unchanged; if it is lost for good, `anabranch segstore repair` gives "
        "up its contents and those of all later files"
    )


class NodeIdMissing(Corrupt):
    """The data directory holds logs and no `node-id`: fields {path, journal}."""

    code = "node-id-missing"
    default_remedy = (
        "restore the file `node-id` from a copy of the data directory; it never changes"
    )


class CorruptChunk(Corrupt):
    code = "corrupt-chunk"


class CorruptManifest(Corrupt):
    code = "corrupt-manifest"


class TierTwoRewound(Corrupt):
    """Tier 2 holds a receipt of an object, and neither the object nor a newer one: somebody deleted
    it. Fields {newest, receipt}, the numbers of what is there and of what was there."""

    code = "tier-two-rewound"
    default_remedy = (
        "restore the deleted objects of tier 2 from a copy; without a copy, docs/operations.md "
        "describes how to continue"
    )


class CorruptEvent(Corrupt):
    """A domain event's checksum, revision or content is wrong; its aggregate stops."""

    code = "corrupt-event"


class CorruptBackup(Corrupt):
    """A file of a metadata backup is damaged or missing."""

    code = "corrupt-backup"
    default_remedy = "restore from another backup; the rest of this one cannot be trusted"


class StreamRewound(Corrupt):
    """A stream's newest sequence is below what was already read: it was replaced or restored."""

    code = "stream-rewound"
    default_remedy = "stop the service and find out how the stream's data was replaced"


class FormatTooNew(Corrupt):
    """Written by a newer release: fields {found, supported}."""

    code = "format-too-new"
    default_remedy = "start a release that knows this format; nothing was changed"
