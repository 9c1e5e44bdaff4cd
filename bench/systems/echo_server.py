"""The bare stack under the gateway: uvicorn, httptools, uvloop, one Starlette route, no work.

    python -m bench.systems.echo_server PORT

POST takes a body and answers its size; GET answers 1 KiB.
"""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_PAGE = bytes(1024)


async def echo(request: Request) -> Response:
    if request.method == "POST":
        body = await request.body()
        return Response(b'{"bytes":%d}' % len(body), media_type="application/json")
    return Response(_PAGE, media_type="application/octet-stream")


if __name__ == "__main__":
    uvicorn.run(
        Starlette(routes=[Route("/", echo, methods=["GET", "POST"])]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
    )
