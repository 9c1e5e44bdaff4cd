"""Runs the examples in the catalogue of commands: one world, in the order of the catalogue.

Words in capitals stand for what a user would copy from another command's output. Each gets a fresh
value of its kind, so that no example depends on the one before it.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

NOT_RUN: Mapping[str, str] = {
    "anabranch up": "runs until Ctrl-C; tests/integration/test_up_command.py",
    "anabranch perf": "takes ten seconds; tests/integration/client_commands/test_measuring.py",
    "anabranch demo": "takes minutes; tests/integration/test_demo.py",
    "anabranch read demo/sensors --from tail --follow": "waits for events until Ctrl-C",
    "anabranch operation redrive": "needs a defect; tests/integration/controller/test_parked.py",
    "anabranch operation drop": "needs a defect; tests/integration/controller/test_parked.py",
    "anabranch controller restore": "needs an empty server; test_restored_cluster.py",
    "anabranch controller repair": "needs a damaged stream; test_restored_cluster.py",
    "anabranch segstore repair": "needs a stopped store; tests/unit/segstore_log/test_repair.py",
    "anabranch tier2 chunk": "needs the name of a chunk; tests/unit/tier2/test_audit.py",
    "anabranch container enable": "needs a disabled container; tests/integration/client_commands",
    "anabranch container replicas set": "needs replicas; docs/replication.md is run",
    "anabranch container elect": "needs a lost leader; docs/replication.md is run",
    "anabranch table watch demo/readings --from now": "waits for changes until Ctrl-C",
    "anabranch pipeline run": "starts Spark; tests/integration/spark/test_archive.py",
    "anabranch group offline": "needs a reader that reads; tests/integration/client_commands",
}
"""The beginnings of examples that are only parsed → the reason, and the test of the command."""
ENDS_WITH_1 = frozenset({"anabranch container abandon-tail 0 --to NODE"})
"""They explain what `--yes` would do, and do nothing."""
READINGS = (("boiler", "21.5"), ("valve", "3"), ("pump", "7"))

Run = Callable[[list[str]], tuple[int, str]]
"""Performs a command line without its first word; returns its exit code and its output."""


def is_run(example: str) -> bool:
    return not any(example.startswith(beginning) for beginning in NOT_RUN)


@dataclass
class ExampleWorld:
    """A cluster with a scope, a stream, a group, a topic and files, as the examples name them."""

    run: Run
    folder: Path
    data_dir: Path

    def prepare(self) -> None:
        """Make what the examples name; delete what earlier ones left."""
        lines = "".join(f"{sensor}\t{value}\n" for sensor, value in READINGS)
        for name in ("readings.txt", "pairs.txt"):
            (self.folder / name).write_text(lines)
        rows = "".join(f"{sensor},{value}\n" for sensor, value in READINGS)
        (self.folder / "readings.csv").write_text("sensor,value\n" + rows)
        self.tidy_up()
        for line in (
            "scope create demo",
            "stream create demo/sensors --segments 2",
            "write demo/sensors readings.txt",
            "group create demo/workers --stream demo/sensors",
            "table create demo/readings",
            "table put demo/readings boiler 20",
            "topic create orders --partitions 2",
        ):
            assert self.run(line.split())[0] == 0, line

    def tidy_up(self) -> None:
        """Delete the scopes and topics of the examples, if they exist."""
        for topic in ("orders", "payments"):
            self.run(["topic", "delete", topic])
        for scope in ("demo", "plant"):
            self.run(["scope", "delete", scope, "--recursive", "--yes"])

    def words(self, example: str) -> list[str]:
        """The example's words with values for those in capitals, without its first one."""
        return [
            self._value(word) if word.isalpha() and word.isupper() else word
            for word in shlex.split(example)[1:]
        ]

    def _value(self, word: str) -> str:
        match word:
            case "TRANSACTION":
                return str(self._record("transaction begin demo/sensors")["transaction_id"])
            case "NODE":
                return str(self._record("segstore list")["node_id"])
            case "OPERATION":
                return str(self._record("operation list")["operation"])
            case "VERSION":
                return str(self._record("table put demo/readings boiler 21")["version"])
            case "BACKUP":
                return (self.folder / "backup").as_uri()
            case "DIRECTORY":
                return str(self.data_dir / "segstore")
        raise AssertionError(f"no value for {word}")

    def _record(self, line: str) -> dict[str, object]:
        code, out = self.run([*line.split(), "--json"])
        assert code == 0, line
        record = json.loads(out.splitlines()[0])
        assert isinstance(record, dict)
        return record
