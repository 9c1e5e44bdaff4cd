"""Sends the gateway of a fresh cluster what its OpenAPI document allows, and what it does not.

    python -m kit.fuzz_gateway [--examples 30] [--seed N]

Schemathesis makes the requests; what it finds is printed and ends with 1: an answer of 5xx that is
not given on purpose (`fuzz_hooks`), a status or a content type that the document does not tell of.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import TransactionSettings, connect
from anabranch.common.model.transaction import LEASE_MS_MAX
from kit.fuzz_hooks import DOOMED, ENDED, GROUP, SCOPE, STREAM, TABLE

SECONDS_MIN, SECONDS_PER_EXAMPLE = 600.0, 30.0
"""How long it may take: what is asked in vain for an answer waits for its own deadline."""
TESTS = Path(__file__).resolve().parents[1]
CHECKS = "no_defect,status_code_conformance,content_type_conformance"
"""What every answer must keep to."""


async def fuzz(examples: int, seed: int | None) -> int:
    """Run against a cluster of its own → the exit code."""
    with tempfile.TemporaryDirectory() as directory:
        async with embedded_cluster(UpSettings(data_dir=Path(directory) / "cluster")) as cluster:
            await cluster.wait_ready()
            transactions = await _prepare(cluster.endpoints_file)
            gateway = str(cluster.endpoints["gateway"])
            return await _run(gateway, examples, seed, Path(directory), transactions)


async def _prepare(endpoints_file: Path) -> str:
    """Something that exists, so that not every answer is 404 → the ids of two transactions."""
    async with connect(endpoints_file) as client:
        for scope in (SCOPE, DOOMED):
            await client.scopes.create(scope)
        for name in (STREAM, DOOMED):
            await client.streams.create(f"{SCOPE}/{name}", segments=2)
        for name in (GROUP, DOOMED):
            await client.reader_groups.create(f"{SCOPE}/{name}", streams=[f"{SCOPE}/{STREAM}"])
        for name in (TABLE, DOOMED, ENDED):
            await client.tables.create(f"{SCOPE}/{name}")
        await client.tables.seal(f"{SCOPE}/{ENDED}")
        ended = f"{SCOPE}/{ENDED}"
        await client.streams.create(ended, segments=1)
        await client.streams.seal(ended)
        await client.reader_groups.create(ended, streams=[ended])
        transactions = client.transactions(f"{SCOPE}/{STREAM}")
        long = TransactionSettings(lease_ms=LEASE_MS_MAX, auto_ping=False)
        begun = [await transactions.begin(long) for _ in range(2)]
        return " ".join(one.id for one in begun)


async def _run(
    url: str, examples: int, seed: int | None, directory: Path, transactions: str
) -> int:
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json",
        "--checks", CHECKS,
        "--max-examples", str(examples), "--phases", "coverage,fuzzing,stateful",
        "--request-timeout", "40", "--no-color", "--generation-database", "none",
    ]  # fmt: skip
    if seed is not None:
        command += ["--seed", str(seed)]
    # It keeps what it found in the directory where it runs.
    hooks = {
        "SCHEMATHESIS_HOOKS": "kit.fuzz_hooks",
        "PYTHONPATH": str(TESTS),
        "FUZZED_TRANSACTIONS": transactions,
    }
    environment = {**os.environ, **hooks}
    seconds_max = SECONDS_MIN + SECONDS_PER_EXAMPLE * examples
    process = await asyncio.create_subprocess_exec(*command, env=environment, cwd=directory)
    try:
        async with asyncio.timeout(seconds_max):
            return await process.wait()
    except TimeoutError:
        sys.stdout.write(f"not done after {seconds_max:.0f} s: try fewer examples\n")
        return 1
    finally:
        if process.returncode is None:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.fuzz_gateway", description="fuzz the gateway")
    parser.add_argument("--examples", type=int, default=30, help="requests per operation")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    return asyncio.run(fuzz(options.examples, options.seed))


if __name__ == "__main__":
    sys.exit(main())
