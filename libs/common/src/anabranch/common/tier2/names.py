"""Names of tier-2 objects. They hold no user's words and are never used twice.

    c3/0000000007-0000000012     chunk 12 written under container epoch 7 of container 3
    c3/m/0000000042              manifest 42 of container 3

Numbers have ten digits, so that names sort as numbers do. A counter restarts with each
container epoch, and an epoch is taken once only, so (epoch, counter) names one object for ever.
"""

_DIGITS = 10
NUMBER_MAX = 10**_DIGITS - 1


def chunk_name(container: int, container_epoch: int, counter: int) -> str:
    """The name of a chunk, or of a snapshot page, of this container epoch."""
    return f"c{container}/{_digits(container_epoch)}-{_digits(counter)}"


def manifest_prefix(container: int) -> str:
    """What the names of all manifests of a container start with."""
    return f"c{container}/m/"


def manifest_name(container: int, number: int) -> str:
    return manifest_prefix(container) + _digits(number)


def manifest_number(container: int, name: str) -> int | None:
    """The number in a manifest's name; None if it is not the name of one."""
    digits = name.removeprefix(manifest_prefix(container))
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def _digits(number: int) -> str:
    assert 0 <= number <= NUMBER_MAX
    return f"{number:0{_DIGITS}d}"
