"""The application: administration by FastAPI, events and health by plain routes, one intake.

WebSockets bypass the intake (`tunnels`), because they have no body and last long.
"""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.common.runtime.clock import Clock
from anabranch.gateway.http.edge.front import Front
from anabranch.gateway.http.edge.intake import Intake, IntakeLimits
from anabranch.gateway.http.edge.problem import add_handlers
from anabranch.gateway.http.edge.read_your_writes import ReadYourWrites
from anabranch.gateway.http.edge.tracing import Tracing
from anabranch.gateway.http.openapi import describe
from anabranch.gateway.http.routes import (
    cluster,
    consumers,
    control,
    docs_page,
    entries,
    entry,
    events,
    group_events,
    group_readers,
    health,
    operations,
    reader_groups,
    records,
    reshaping,
    retention,
    scaling,
    scopes,
    segments,
    spus,
    streams,
    table_changes,
    tables,
    topics,
    transaction_events,
    transactions,
    tunnels,
    welcome,
    work,
    writer_times,
)
from anabranch.gateway.http.routes.parts import Parts
from anabranch.gateway.http.routes.tunnels import Tunnels
from anabranch.gateway.settings import Settings

ROUTERS = (
    scopes.router,
    streams.router,
    reshaping.router,
    scaling.router,
    segments.router,
    retention.router,
    writer_times.router,
    transactions.router,
    reader_groups.router,
    group_readers.router,
    reader_groups.subscribers_router,
    tables.router,
    topics.router,
    topics.rebalance_router,
    consumers.router,
    spus.router,
    spus.groups_router,
    operations.router,
    work.router,
    cluster.router,
    control.router,
)
ANSWER_EXTRA_S = 30.0
"""Time for a route beyond its own wait: to query the cluster and to send the answer."""


def build_app(parts: Parts, clock: Clock) -> ASGIApp:
    """Build the application over these parts."""
    api = FastAPI(
        title="Anabranch gateway",
        description=welcome.DESCRIPTION,
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    api.state.parts = parts
    add_handlers(api)
    others = [
        *welcome.routes(),
        *docs_page.routes(),
        *health.routes(),
        *group_events.routes(),
        *entry.routes(),
        *entries.routes(),
        *table_changes.routes(),
        *transaction_events.routes(),
        *records.routes(),
        *tunnels.routes(),
    ]
    api.router.routes[:0] = events.routes()  # First, because they are the most frequent.
    # Add the routes themselves: FastAPI would analyse an included router again.
    for router in ROUTERS:
        api.router.routes.extend(router.routes)
    api.router.routes.extend(others)
    describe(api)
    route_of = RouteTemplates([*events.routes(), *others]).template_of
    entries_first = Front(entry.routes(), api, api)
    intake = Intake(
        Front(events.routes(), ReadYourWrites(entries_first), api),
        limits=_limits(parts.settings),
        clock=clock,
        metrics=parts.metrics,
        route_of=route_of,
    )
    requests = intake if parts.tracer is None else Tracing(intake, parts.tracer, route_of)
    websockets = Tunnels(parts.stores, parts.metrics, clock, parts.settings.tunnels_max)

    async def by_kind(scope: Scope, receive: Receive, send: Send) -> None:
        served: ASGIApp = websockets if scope["type"] == "websocket" else requests
        await served(scope, receive, send)

    return by_kind


def _limits(settings: Settings) -> IntakeLimits:
    return IntakeLimits(
        body_size_bytes_max=settings.body_size_bytes_max,
        bodies_size_bytes_max=max(settings.pending_size_bytes_max, settings.body_size_bytes_max),
        body_timeout_s=settings.body_timeout_s,
        answer_timeout_s=max(settings.request_timeout_s, settings.wait_s_max) + ANSWER_EXTRA_S,
        requests_max=settings.requests_max,
    )


class RouteTemplates:
    """Names requests by their route, so that counts do not grow with the names in paths."""

    def __init__(self, plain: Sequence[Route]) -> None:
        self._plain = {route.path for route in plain if "{" not in route.path}
        self._by_endpoint: dict[object, str] = {
            route.endpoint: route.path_format for route in plain if "{" in route.path
        }

    def template_of(self, scope: Scope) -> str:
        """The path template of a routed request; FastAPI leaves its own routes in the scope."""
        path = getattr(scope.get("route"), "path", None)
        if isinstance(path, str):
            return path
        if scope["path"] in self._plain:
            return str(scope["path"])
        return self._by_endpoint.get(scope.get("endpoint"), "other")
