"""Health and metrics: what probes ask, in the words of Kubernetes and in those of Pravega."""

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from anabranch.common.runtime.health import is_ready
from anabranch.common.runtime.metrics import CONTENT_TYPE
from anabranch.gateway.http.parts import parts_of


def routes() -> list[Route]:
    return [
        Route("/ping", ping),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/v1/health", health),
        Route("/v1/health/status", status),
        Route("/v1/health/readiness", readiness),
        Route("/v1/health/liveness", liveness),
    ]


async def ping(_request: Request) -> Response:
    return PlainTextResponse("pong\n")


async def healthz(_request: Request) -> Response:
    """The process lives."""
    return JSONResponse({"alive": True})


async def readyz(request: Request) -> Response:
    """200 when every part is ready, else 503; either way with each part's reason."""
    parts = parts_of(request).health()
    ready = is_ready(parts)
    shown = {name: {"ready": part.ready, "reason": part.reason} for name, part in parts.items()}
    return JSONResponse({"ready": ready, "parts": shown}, 200 if ready else 503)


async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    return Response(parts_of(request).metrics.exposition(), media_type=CONTENT_TYPE)


async def health(request: Request) -> Response:
    """Pravega's health tree: the gateway, and its parts as children."""
    parts = parts_of(request).health()
    children = {name: _health(name, part.ready) for name, part in parts.items()}
    return JSONResponse({**_health("gateway", is_ready(parts)), "children": children})


async def status(request: Request) -> Response:
    return JSONResponse({"status": _status(is_ready(parts_of(request).health()))})


async def readiness(request: Request) -> Response:
    return JSONResponse({"ready": is_ready(parts_of(request).health())})


async def liveness(_request: Request) -> Response:
    return JSONResponse({"alive": True})


def _health(name: str, ready: bool) -> dict[str, object]:
    return {
        "name": name,
        "status": _status(ready),
        "readiness": ready,
        "liveness": True,
        "details": {},
    }


def _status(ready: bool) -> str:
    return "UP" if ready else "STARTING"
