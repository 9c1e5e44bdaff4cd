"""Codecs of blocks: the encodings of the bytes after a block's header.

    0  plain
    1  one Zstandard frame that states the size of its content

Bytes from outside cannot cause large allocations: before it allocates memory, the decoder checks
that the frame states the size that the caller expects, and it bounds the window.
"""

from anabranch.common.errors import CodecMissing, CorruptBlock

CODEC_NONE = 0
CODEC_ZSTD = 1
CODECS = (CODEC_NONE, CODEC_ZSTD)

ZSTD_LEVEL_DEFAULT = 1
ZSTD_LEVEL_MAX = 19
"""Above this level a compressor needs hundreds of MiB."""
_WINDOW_SIZE_BYTES_MAX = 16 * 1024 * 1024

Buffer = bytes | memoryview


def require_zstd() -> None:
    """Raise CodecMissing if the library, which services do not need, is not installed."""
    try:
        import zstandard  # noqa: F401
    except ImportError as error:
        raise CodecMissing(
            "Zstandard is not installed",
            remedy="pip install 'anabranch-client[zstd]'",
            package="zstandard",
        ) from error


def compress_zstd(body: bytes, level: int) -> bytes:
    """Compress `body` to one frame; `level` from 1 (fast) to 19. Raises CodecMissing."""
    assert 1 <= level <= ZSTD_LEVEL_MAX
    require_zstd()
    import zstandard

    return zstandard.ZstdCompressor(level=level, write_content_size=True).compress(body)


def decompress_zstd(frame: Buffer, size: int) -> bytes:
    """Decompress exactly one frame of `size` bytes. Raises CorruptBlock, CodecMissing."""
    require_zstd()
    import zstandard

    try:
        stated = zstandard.get_frame_parameters(frame).content_size
        if stated != size:
            raise CorruptBlock(
                "a compressed block's size contradicts its header",
                stated=stated, expected=size,
            )  # fmt: skip
        opener = zstandard.ZstdDecompressor(max_window_size=_WINDOW_SIZE_BYTES_MAX)
        body = opener.decompress(frame, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptBlock("a compressed block cannot be decompressed", cause=str(error)) from error
    if len(body) != size:
        raise CorruptBlock(
            "a compressed block's size contradicts its header",
            stated=len(body), expected=size,
        )  # fmt: skip
    return body
