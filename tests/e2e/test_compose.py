"""The cluster of the compose file, used and hurt from outside, by HTTP and the engine alone."""

import httpx

from kit.compose import PROJECT, SERVICES, Compose

STREAMS = "/v1/scopes/plant/streams"
EVENTS = f"{STREAMS}/sensors/events"
NDJSON = {"content-type": "application/x-ndjson"}
COUNT = 500
PYTHON = "/opt/anabranch/bin/python"


async def test_events_posted_to_the_containers_survive_a_kill_of_the_segment_store(
    compose: Compose,
) -> None:
    await compose.healthy()
    async with httpx.AsyncClient(base_url=compose.gateway_url, timeout=60) as http:
        await create_stream(http)
        lines = [b'{"n":%d}' % number for number in range(COUNT)]
        posted = await http.post(EVENTS, content=b"\n".join(lines), headers=NDJSON)
        assert posted.json()["events"] == COUNT, posted.text
        assert await read_all(http) == lines

        # A module in the data volume that services would import by its name if they could.
        stray = "open('/data/nkeys.py', 'w').write('raise SystemExit(9)')"
        compose.run("exec", "-T", "segstore", PYTHON, "-c", stray)
        compose.run("kill", "--signal", "SIGKILL", "segstore")
        compose.run("start", "segstore")
        await compose.healthy(["segstore"])

        after = await http.post(EVENTS, content=b'{"n":"after"}', headers=NDJSON)
        assert after.json()["events"] == 1, after.text
        assert await read_all(http) == [*lines, b'{"n":"after"}']


async def test_every_container_runs_without_rights_that_it_does_not_need(compose: Compose) -> None:
    await compose.healthy()
    for service in SERVICES:
        about = compose.inspect(service)
        host = about["HostConfig"]
        assert host["ReadonlyRootfs"], service
        assert host["CapDrop"] == ["ALL"], service
        assert "no-new-privileges:true" in host["SecurityOpt"], service
        published = [one for ports in host["PortBindings"].values() for one in ports]
        assert {one["HostIp"] for one in published} <= {"127.0.0.1"}, service
        assert bool(published) == (service == "gateway"), service
        assert host["NanoCpus"] > 0, service
        assert host["Memory"] > 0, service
        assert host["PidsLimit"] > 0, service
    for service in ("controller", "segstore", "gateway"):
        assert compose.inspect(service)["Config"]["User"] == "10001:10001"
        assert compose.run("exec", "-T", service, "id", "-u").strip() == "10001"


async def test_a_container_keeps_its_data_in_volumes_that_have_names(compose: Compose) -> None:
    await compose.healthy()
    for service in SERVICES:
        volumes = [one for one in compose.inspect(service)["Mounts"] if one["Type"] == "volume"]
        names = {one["Name"] for one in volumes}
        assert all(name.startswith(f"{PROJECT}_") for name in names), (service, names)


async def test_the_metrics_of_every_part_are_read_from_another_container(compose: Compose) -> None:
    await compose.healthy()
    program = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
    for service in ("controller", "segstore", "gateway"):
        url = f"http://{service}:9464/metrics"
        told = compose.anabranch("-c", program, url, options=["--entrypoint", PYTHON])
        assert f"anabranch_{service}_" in told, service


async def test_every_part_stops_in_order_when_it_is_asked_to(compose: Compose) -> None:
    await compose.healthy()
    for service in ("gateway", "segstore", "controller"):
        compose.run("stop", service)
        state = compose.inspect(service)["State"]
        assert (state["Status"], state["ExitCode"]) == ("exited", 0), service
    compose.run("start")
    await compose.healthy()


async def create_stream(http: httpx.AsyncClient) -> None:
    policy = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}
    scope = await http.post("/v1/scopes", json={"scopeName": "plant"})
    assert scope.status_code == 201, scope.text
    body = {"streamName": "sensors", "scalingPolicy": policy}
    stream = await http.post(STREAMS, json=body)
    assert stream.status_code == 201, stream.text


async def read_all(http: httpx.AsyncClient) -> list[bytes]:
    """Every event of the stream, in the order read."""
    position, events = "head", list[bytes]()
    while True:
        page = await http.get(EVENTS, params={"from": position})
        assert page.status_code == 200, page.text
        if not page.content:
            return events
        events += page.content.splitlines()
        position = page.headers["next-position"]
