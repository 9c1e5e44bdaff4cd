"""The registered SPUs of a world without a store of objects."""

from collections.abc import Callable, Collection, Mapping

from anabranch.common.errors import ObjectExists
from anabranch.common.model.objects import Spu, SpuSpec, SpuStatus


class RegisteredSpus:
    """Every controller of the world sees each change at once."""

    def __init__(self) -> None:
        self._objects: dict[str, Spu] = {}
        self._listeners: list[Callable[[], None]] = []
        self.listed = True

    @property
    def objects(self) -> Mapping[str, Spu]:
        return self._objects

    def known(self) -> Collection[str] | None:
        """The node ids; None until all are listed."""
        return self._objects.keys() if self.listed else None

    def ids(self) -> dict[str, int]:
        return {name: spu.spec.spu_id for name, spu in sorted(self._objects.items())}

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def tell(self) -> None:
        for listener in self._listeners:
            listener()

    async def register(self, spu: Spu) -> None:
        if spu.key in self._objects:
            raise ObjectExists("the SPU is registered", key=spu.key)
        self._objects[spu.key] = spu
        self.tell()

    def add(self, name: str, spu_id: int) -> None:
        self._objects[name] = Spu(name, SpuSpec(spu_id), SpuStatus())
        self.tell()

    def remove(self, name: str) -> None:
        del self._objects[name]
        self.tell()
