"""Randomness and ids as parameters. Only this module may draw them."""

import random
import secrets
from typing import Protocol


class Rng(Protocol):
    def random(self) -> float:
        """A float in [0, 1)."""
        ...


class IdSource(Protocol):
    def new_id(self) -> str:
        """32 hexadecimal digits, never repeated."""
        ...

    def new_bytes(self) -> bytes:
        """16 bytes, never repeated."""
        ...


class SystemIds:
    """Ids from the operating system's randomness."""

    def new_id(self) -> str:
        return secrets.token_hex(16)

    def new_bytes(self) -> bytes:
        return secrets.token_bytes(16)


def new_password() -> str:
    """43 characters of A–Z, a–z, 0–9, - and _: 256 bits of the operating system's randomness."""
    return secrets.token_urlsafe(32)


def system_rng() -> Rng:
    return random.Random()


class SeededIds:
    """Reproducible ids for simulations and tests."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def new_id(self) -> str:
        return self.new_bytes().hex()

    def new_bytes(self) -> bytes:
        return self._random.randbytes(16)
