"""Structured logs: one JSON object per line, or a readable console when stderr is a terminal.

A line is a constant text (`event`) plus fields; inside a span, `trace_id` and `span_id` name it.
Lines that libraries write through the standard `logging` module take the same way, so a log file
has one format. Lines of this project's libraries (`logger`) keep their fields.
"""

import logging
import sys
from collections.abc import Mapping
from typing import TextIO

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

from anabranch.common.errors import AnabranchError, InvalidSetting
from anabranch.common.runtime.logger import ROOT, Line

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logs(service: str, level: str, stream: TextIO | None = None) -> None:
    """Send the logs of this process to `stream` (stderr), each line naming the service.

    Idempotent; the last call wins. Raises InvalidSetting for an unknown level.
    """
    number = LEVELS.get(level.lower())
    if number is None:
        known = ", ".join(LEVELS)
        raise InvalidSetting("unknown log level", remedy=f"use one of {known}", level=level)
    target = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _name_service(service),
        name_trace,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_open_line, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(target),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    logging.getLogger(ROOT).setLevel(number)


def error_fields(error: AnabranchError) -> dict[str, object]:
    """An error as log fields for operators: {code, message, remedy, fields}."""
    return error.to_body("command")


def _open_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A processor that takes the text and the fields out of a `Line`."""
    line = event["_record"].msg
    if isinstance(line, Line):
        event = {**line.fields, **event, "event": line.text}
    return event


def _name_service(service: str) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        return event

    return add


def name_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A processor that adds the current trace and span to a line."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = f"{context.trace_id:032x}"
        event["span_id"] = f"{context.span_id:016x}"
    return event


def _renderers(target: TextIO) -> list[Processor]:
    if target.isatty():
        return [structlog.dev.ConsoleRenderer()]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
