"""Runs one controller: ``python -m anabranch.controller``."""

import sys
from functools import partial

from anabranch.common.runtime.garbage import collect_nothing_yet


def main() -> int:
    """Run until stopped; the process's exit code."""
    collect_nothing_yet()
    from anabranch.common.runtime.service import run_service, settings_or_exit
    from anabranch.controller.settings import Settings
    from anabranch.controller.wiring import run_controller

    settings = settings_or_exit("controller", Settings.from_environment)
    return run_service(
        "controller",
        partial(run_controller, settings),
        health_bind=settings.health_bind,
        log_level=settings.log_level,
        telemetry=settings.telemetry,
    )


if __name__ == "__main__":
    sys.exit(main())
