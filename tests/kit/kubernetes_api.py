"""The part of a Kubernetes API server that StatefulSets and Services need, on the loopback address.

It keeps objects, checks bodies as the real server does where a mistake would show only there, and
has no pods: a StatefulSet has as many ready ones as the test says.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Body = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
CHANGEABLE = {"replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy"}
"""The fields of a StatefulSet's spec that the real server lets a client change, of those used."""


class KubernetesApi:
    """`requests`: (method, path) of each request. `sets` and `services`: the objects by name.
    `refuses`: a status that answers every request; 0: none."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.sets: dict[str, Body] = {}
        self.services: dict[str, Body] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str] = set()
        self.refuses = 0

    def make_ready(self, name: str, count: int) -> None:
        """Let the StatefulSet have so many pods, all ready."""
        self.sets[name]["status"] = {"replicas": count, "readyReplicas": count}

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """The URL of the server within the block."""
        app = web.Application(middlewares=[self._note])
        sets = f"/apis/apps/v1/namespaces/{self._namespace}/statefulsets"
        services = f"/api/v1/namespaces/{self._namespace}/services"
        app.add_routes(
            [
                web.get(sets, self._list),
                web.post(sets, self._create_set),
                web.patch(sets + "/{name}", self._patch),
                web.delete(sets + "/{name}", self._delete_set),
                web.post(services, self._create_service),
                web.delete(services + "/{name}", self._delete_service),
            ]
        )
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        self.tokens.add(request.headers.get("Authorization", ""))
        if self.refuses:
            return _status(self.refuses, "refused by the test")
        answer = await handler(request)
        assert isinstance(answer, web.StreamResponse)
        return answer

    async def _list(self, request: web.Request) -> web.Response:
        wanted = dict(part.split("=") for part in request.query["labelSelector"].split(","))
        found = [one for one in self.sets.values() if wanted.items() <= _labels(one).items()]
        return web.json_response(
            {"kind": "StatefulSetList", "apiVersion": "apps/v1", "metadata": {}, "items": found}
        )

    async def _create_set(self, request: web.Request) -> web.Response:
        body = await request.json()
        problem = problem_of(body)
        if problem:
            return _status(422, problem)
        return self._created(self.sets, body)

    async def _create_service(self, request: web.Request) -> web.Response:
        return self._created(self.services, await request.json())

    def _created(self, kept: dict[str, Body], body: Body) -> web.Response:
        name = body["metadata"]["name"]
        if body["metadata"]["namespace"] != self._namespace:
            return _status(400, "the namespace does not match the URL")
        if name in kept:
            return _status(409, "AlreadyExists")
        kept[name] = json.loads(json.dumps(body))
        return web.json_response(kept[name], status=201)

    async def _patch(self, request: web.Request) -> web.Response:
        found = self.sets.get(request.match_info["name"])
        if request.content_type != MERGE_PATCH:
            return _status(415, f"not a merge patch: {request.content_type}")
        if found is None:
            return _status(404, "NotFound")
        patch = await request.json()
        if patch.get("spec", {}).keys() - CHANGEABLE:
            return _status(422, "Forbidden: updates to statefulset spec")
        _merge(found, patch)
        return web.json_response(found)

    async def _delete_set(self, request: web.Request) -> web.Response:
        return self._deleted(self.sets, request)

    async def _delete_service(self, request: web.Request) -> web.Response:
        return self._deleted(self.services, request)

    def _deleted(self, kept: dict[str, Body], request: web.Request) -> web.Response:
        if kept.pop(request.match_info["name"], None) is None:
            return _status(404, "NotFound")
        return _status(200, "Success")


def problem_of(body: Body) -> str:
    """Why the real server would refuse this StatefulSet; "" if it would not."""
    spec = body["spec"]
    if (body["apiVersion"], body["kind"]) != ("apps/v1", "StatefulSet"):
        return "not a StatefulSet"
    if not isinstance(spec["replicas"], int) or spec["replicas"] < 0:
        return "spec.replicas: must be greater than or equal to 0"
    template = spec["template"]["metadata"]["labels"]
    if not spec["selector"]["matchLabels"].items() <= template.items():
        return "`selector` does not match template `labels`"
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    for container in spec["template"]["spec"]["containers"]:
        if {mount["name"] for mount in container["volumeMounts"]} - claims:
            return "volumeMounts: not found"
        for variable in container["env"]:
            if not isinstance(variable.get("value", ""), str):
                return "env: value must be a string"
    return ""


def _labels(body: Body) -> dict[str, str]:
    found = body["metadata"]["labels"]
    assert isinstance(found, dict)
    return found


def _merge(found: Body, patch: Body) -> None:
    """RFC 7386."""
    for name, value in patch.items():
        if isinstance(value, dict) and isinstance(found.get(name), dict):
            _merge(found[name], value)
        elif value is None:
            found.pop(name, None)
        else:
            found[name] = value


def _status(code: int, message: str) -> web.Response:
    told = "Success" if code < 400 else "Failure"
    return web.json_response(
        {"kind": "Status", "apiVersion": "v1", "status": told, "message": message, "code": code},
        status=code,
    )
