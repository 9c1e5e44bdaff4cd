"""Stored or received bytes are damaged: an operator must act."""

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
    """A file that the journal refers to is not in its directory: fields {file}."""

    code = "journal-file-missing"
    default_remedy = (
        "put the file back unchanged; if it is lost for good, `anabranch segstore repair` gives "
        "up its contents and those of all later files"
    )


class NodeIdMissing(Corrupt):
    """The data directory holds logs but no file `node-id`: fields {path, journal}."""

    code = "node-id-missing"
    default_remedy = (
        "restore the file `node-id` from a copy of the data directory; it never changes"
    )


class CorruptChunk(Corrupt):
    code = "corrupt-chunk"


class CorruptManifest(Corrupt):
    code = "corrupt-manifest"


class TierTwoRewound(Corrupt):
    """Tier 2 holds a receipt of an object, but neither the object nor a newer one: an outside party
    deleted it. Fields {newest, receipt}: the newest present number and the receipt's number."""

    code = "tier-two-rewound"
    default_remedy = (
        "restore the deleted objects of tier 2 from a copy; without a copy, docs/operations.md "
        "describes how to continue"
    )


class CorruptEvent(Corrupt):
    """A domain event has a wrong checksum, revision or content; work on its aggregate stops."""

    code = "corrupt-event"


class CorruptBackup(Corrupt):
    """A file of a metadata backup is damaged or missing."""

    code = "corrupt-backup"
    default_remedy = "restore from another backup; the rest of this one cannot be trusted"


class StreamRewound(Corrupt):
    """A stream's newest sequence is below one read before: the stream was replaced or restored."""

    code = "stream-rewound"
    default_remedy = "stop the service and find out how the stream's data was replaced"


class FormatTooNew(Corrupt):
    """A newer release wrote the data: fields {found, supported}."""

    code = "format-too-new"
    default_remedy = "start a release that knows this format; nothing was changed"
