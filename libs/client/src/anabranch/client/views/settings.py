"""The settings of a view."""

from dataclasses import dataclass, field

from anabranch.client.settings import MIB, ReaderSettings, TableSettings
from anabranch.common.errors import InvalidSetting


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """The settings of a view.

    ::

        settings = ViewSettings(round_events=1_000)
        async with client.view(
            "shop/sales", group="shop/counters", table="shop/counts", settings=settings,
            key=lambda event: event.key, fold=lambda row, event: event.payload,
        ) as view:
            await view.run()

    Invariants, or InvalidSetting: all numbers are positive.
    """

    round_events: int = 10_000
    """A round takes blocks until it has so many events. All of a round is saved at once."""
    cache_size_bytes: int = 32 * MIB
    """The memory for rows between rounds, divided evenly among the table's partitions."""
    save_interval_s: float = 1.0
    """How often the reader group learns how far the view is; the table always knows."""
    retry_timeout_s: float = 60.0
    """`run` raises Unavailable after so many seconds in which other processes changed all rows
    before it could save them."""
    reading: ReaderSettings = field(default_factory=ReaderSettings)
    """The settings of the view's reads of the streams."""
    table: TableSettings = field(default_factory=TableSettings)
    """The settings of the view's reads and updates of the table."""

    def __post_init__(self) -> None:
        numbers = (
            self.round_events, self.cache_size_bytes, self.save_interval_s, self.retry_timeout_s,
        )  # fmt: skip
        if min(numbers) <= 0:
            raise InvalidSetting("a view's settings must be positive")
