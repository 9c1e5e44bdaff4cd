"""``python -m anabranch.segstore``: one segment store, configured by its environment."""

import argparse
import sys
from typing import TYPE_CHECKING

from anabranch.common.runtime.garbage import collect_nothing_yet

if TYPE_CHECKING:
    from anabranch.segstore.settings import SegstoreSettings


def settings_of(arguments: list[str]) -> "SegstoreSettings":
    """The environment's settings with the command line's options. Raises InvalidSetting."""
    from anabranch.segstore.settings import SegstoreSettings

    parser = argparse.ArgumentParser(
        prog="python -m anabranch.segstore",
        description="One segment store, configured by ANABRANCH_SEGSTORE_… variables.",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="open the data directory although another process holds its lock; "
        "the journal's fence ends that process",
    )
    chosen = parser.parse_args(arguments)
    settings = SegstoreSettings.from_environment()
    return settings.model_copy(update={"take_over": True}) if chosen.take_over else settings


def main() -> int:
    """Run until a signal stops the store; the result is the exit code."""
    collect_nothing_yet()
    from anabranch.common.runtime.service import run_service, settings_or_exit
    from anabranch.segstore.wiring import serve

    settings = settings_or_exit("segstore", lambda: settings_of(sys.argv[1:]))
    return run_service(
        "segstore",
        lambda lifetime: serve(settings, lifetime),
        health_bind=settings.health_bind,
        log_level=settings.log_level,
        telemetry=settings.telemetry,
    )


if __name__ == "__main__":
    sys.exit(main())
