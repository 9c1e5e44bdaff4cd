"""The NATS configurations that we ship or write: accepted by the server, and durable."""

import asyncio
import subprocess
from pathlib import Path

from anabranch.cli.up.binaries import find_nats_server
from anabranch.cli.up.nats_config import nats_config
from anabranch.common.runtime.nats_target import Login

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "nats.conf"


def test_both_configurations_are_accepted_and_sync_every_write(tmp_path: Path) -> None:
    login = Login.of("anabranch", 'a "quoted" $password')
    written = tmp_path / "nats.conf"
    written.write_text(nats_config(21000, 21001, tmp_path / 'a "quoted" directory', login))
    program = asyncio.run(find_nats_server())

    for config in (DEPLOYED, written):
        command = [str(program), "--config", str(config), "-t"]
        checked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)
        assert checked.returncode == 0, checked.stderr
        assert "sync_interval: always" in config.read_text()
