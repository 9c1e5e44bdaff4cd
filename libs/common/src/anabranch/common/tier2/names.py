"""Names of tier-2 objects. They contain no user's words and are never reused.

    c3/0000000007-0000000012     chunk 12 (or page, or page index) written under container
                                 epoch 7 of container 3
    c3/m/0000000042              manifest 42 of container 3
    c3/m/r0000000042             the receipt of manifest 42: it was created

Numbers have ten digits, so that names sort as numbers do. A counter restarts with each container
epoch, and only one owner gets an epoch, so (epoch, counter) names at most one object ever.
"""

RECEIPT = "r"
_DIGITS = 10
NUMBER_MAX = 10**_DIGITS - 1


def chunk_name(container: int, container_epoch: int, counter: int) -> str:
    """The name of a chunk, or of a snapshot page, of this container epoch."""
    return f"c{container}/{_digits(container_epoch)}-{_digits(counter)}"


def container_prefix(container: int) -> str:
    """The prefix of the names of all objects of a container, manifests included."""
    return f"c{container}/"


def chunk_epoch(container: int, name: str) -> int | None:
    """The container epoch in the name of a chunk or page; None for any other name."""
    epoch, dash, counter = name.removeprefix(container_prefix(container)).partition("-")
    if not dash or not _is_number(epoch) or not _is_number(counter):
        return None
    return int(epoch)


def manifest_prefix(container: int) -> str:
    """The prefix of the names of a container's manifests and receipts."""
    return f"c{container}/m/"


def manifest_name(container: int, number: int) -> str:
    return manifest_prefix(container) + _digits(number)


def manifest_number(container: int, name: str) -> int | None:
    """The number in a manifest's name; None for any other name."""
    digits = name.removeprefix(manifest_prefix(container))
    return int(digits) if _is_number(digits) else None


def receipt_name(container: int, number: int) -> str:
    """The name of a manifest's receipt, which is listed with the manifests."""
    return f"{manifest_prefix(container)}{RECEIPT}{_digits(number)}"


def receipt_number(container: int, name: str) -> int | None:
    """The manifest's number in a receipt's name; None for any other name."""
    digits = name.removeprefix(manifest_prefix(container) + RECEIPT)
    return int(digits) if _is_number(digits) and digits != name else None


def _is_number(digits: str) -> bool:
    return len(digits) == _DIGITS and digits.isascii() and digits.isdigit()


def _digits(number: int) -> str:
    assert 0 <= number <= NUMBER_MAX
    return f"{number:0{_DIGITS}d}"
