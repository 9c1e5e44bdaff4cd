"""The codec of a producer: the one that it asks for, if its topic allows it. Pure."""

from dataclasses import replace

from anabranch.client.settings import WriterSettings
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.objects import Compression


def agreed_settings(
    settings: WriterSettings, asked: str | None, allowed: Compression, topic: str
) -> WriterSettings:
    """The settings with the codec to use. `asked` None: that of the settings, else the topic's.

    Raises InvalidRequest for a codec that does not exist, and for one that the topic forbids.
    """
    wanted = asked if asked is not None else settings.compression
    if wanted is None:
        return _with(settings, Compression.NONE if allowed is Compression.ANY else allowed)
    codec = codec_named(wanted)
    if codec is Compression.ANY:
        raise InvalidRequest(
            "a producer uses one codec", remedy="use none or zstd", compression=wanted
        )
    if allowed not in (Compression.ANY, codec):
        raise InvalidRequest(
            f"Compression in the producer ({codec}) does not match with topic level compression "
            f"({allowed})",
            remedy="omit the producer's compression, or change the topic's",
            topic=topic, compression=codec, allowed=allowed,
        )  # fmt: skip
    return _with(settings, codec)


def codec_named(name: str) -> Compression:
    """The codec of this name. Raises InvalidRequest, naming the codecs that exist."""
    try:
        return Compression(name.lower())
    except ValueError:
        raise InvalidRequest(
            f"the codec {name[:100]!r} is not supported",
            remedy=f"use one of {', '.join(Compression)}",
            compression=name[:100],
        ) from None


def _with(settings: WriterSettings, codec: Compression) -> WriterSettings:
    return replace(settings, compression="zstd" if codec is Compression.ZSTD else None)
