"""The commands for entries of key-value tables, against partitions in memory."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch.cli.commands import table_load
from anabranch.common.errors import SegmentSealed
from anabranch.common.wire.messages import UpdateTable
from kit.table_line import TableLine, table_line

TABLE = "plant/latest"


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> TableLine:
    """With the table plant/latest."""
    return table_line(capsys, monkeypatch)


@pytest.fixture
def pairs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> TableLine:
    """With the table plant/latest, which has secondary keys."""
    return table_line(capsys, monkeypatch, pairs=True)


def given(tmp_path: Path, data: bytes) -> str:
    """The name of a file with the data."""
    path = tmp_path / "given"
    path.write_bytes(data)
    return str(path)


# --- one entry ------------------------------------------------------------------------------------


def test_an_entry_is_put_read_replaced_and_removed(line: TableLine) -> None:
    (put,) = line.records(f"table put {TABLE} apple 5")
    assert put == {"table": TABLE, "key": "apple", "version": put["version"]}
    assert line(f"table get {TABLE} apple") == "5\n"
    told = line(f"table replace {TABLE} apple 6 --version {put['version']}")
    assert told.startswith(f"replaced apple in {TABLE}; its version is ")
    (entry,) = line.records(f"table get {TABLE} apple")
    assert entry == {
        "key": "apple", "value": "6", "version": told.split()[-1], "expires_ms": 0,
    }  # fmt: skip
    assert line(f"table insert {TABLE} pear 7").startswith("inserted pear")
    assert line(f"table put {TABLE} pear 8").startswith("put pear")
    assert line(f"table remove {TABLE} apple") == f"removed apple from {TABLE}\n"
    assert line.records(f"table remove {TABLE} apple") == [{"table": TABLE, "key": "apple"}]
    line(f"table get {TABLE} apple", code=1)
    assert "the key has no entry" in line.notes


def test_a_condition_that_does_not_hold_ends_with_1(line: TableLine) -> None:
    (put,) = line.records(f"table put {TABLE} apple 5")
    line(f"table insert {TABLE} apple 6", code=1)
    assert "has an entry" in line.notes
    assert f"version={put['version']}" in line.notes
    stale = put["version"] + "9"
    line(f"table replace {TABLE} apple 6 --version {stale}", code=1)
    assert "another version" in line.notes
    line(f"table remove {TABLE} apple --version {stale}", code=1)
    line(f"table replace {TABLE} none 6 --version {stale}", code=1)
    assert "no entry" in line.notes
    line(f"table replace {TABLE} apple 6 --version nonsense", code=1)
    line(f"table replace {TABLE} apple 6", code=2)
    assert line(f"table get {TABLE} apple") == "5\n"
    line(f"table remove {TABLE} apple --version {put['version']}")


def test_a_value_of_any_bytes_goes_in_and_out_of_files(line: TableLine, tmp_path: Path) -> None:
    path, out = given(tmp_path, b"\xff\n\0"), tmp_path / "out"
    line(f"table put {TABLE} logo --file", path)
    line(f"table get {TABLE} logo --file {out}")
    assert out.read_bytes() == b"\xff\n\0"
    (entry,) = line.records(f"table get {TABLE} logo")
    assert entry["value_base64"] == "/woA"
    line(f"table put {TABLE} logo text --file", path, code=1)
    assert "twice" in line.notes
    line(f"table put {TABLE} logo --file {tmp_path}/none", code=1)
    assert "cannot be read" in line.notes
    (tmp_path / "given").write_bytes(bytes(1024 * 1024))
    line(f"table put {TABLE} logo --file", path, code=1)
    assert "too large" in line.notes


def test_a_key_may_be_given_in_base64(line: TableLine) -> None:
    line(f"table put {TABLE} /w== 1 --base64-keys")
    (entry,) = line.records(f"table get {TABLE} /w== --base64-keys")
    assert entry["key_base64"] == "/w=="
    line(f"table get {TABLE} ? --base64-keys", code=1)
    assert "base64" in line.notes
    assert line(f"table scan {TABLE} --prefix /w== --base64-keys --output raw") == "1\n"


def test_an_entry_lives_as_long_as_it_is_told(line: TableLine) -> None:
    line(f"table put {TABLE} a 1 --ttl 5s")
    line(f"table put {TABLE} b 1 --ttl 0")
    line(f"table put {TABLE} c 1 --ttl soon", code=1)
    found = {one["key"]: one["expires_ms"] for one in line.records(f"table scan {TABLE}")}
    assert found == {"a": 5000, "b": 0}


def test_secondary_keys_are_named_by_an_option(pairs: TableLine) -> None:
    pairs(f"table put {TABLE} shop 1 --secondary-key apple")
    pairs(f"table put {TABLE} shop 2")
    assert pairs(f"table get {TABLE} shop --secondary-key apple") == "1\n"
    assert pairs(f"table get {TABLE} shop") == "2\n"
    told = pairs(f"table remove {TABLE} shop --secondary-key apple")
    assert told == f"removed shop, apple from {TABLE}\n"
    (entry,) = pairs.records(f"table get {TABLE} shop")
    assert (entry["key"], entry["secondary_key"]) == ("shop", "")


def test_a_table_without_secondary_keys_takes_none(line: TableLine) -> None:
    line(f"table put {TABLE} shop 1 --secondary-key apple", code=1)
    assert "no secondary keys" in line.notes
    line("table put plant/none a 1", code=1)
    assert "`anabranch table list plant`" in line.notes


# --- scans ----------------------------------------------------------------------------------------


def filled(line: TableLine) -> None:
    for number, key in enumerate(("apple", "apricot", "banana", "cherry")):
        line(f"table put {TABLE} {key} {number}")


def test_entries_are_shown_in_columns_in_the_order_of_their_keys(line: TableLine) -> None:
    filled(line)
    rows = [row.split() for row in line(f"table scan {TABLE}").splitlines()]
    assert rows[0] == ["KEY", "VERSION", "VALUE"]
    assert [(row[0], row[2]) for row in rows[1:]] == [
        ("apple", "0"), ("apricot", "1"), ("banana", "2"), ("cherry", "3"),
    ]  # fmt: skip
    bare = [row.split() for row in line(f"table scan {TABLE} --no-values").splitlines()]
    assert bare[0] == ["KEY", "VERSION"]
    assert [row[0] for row in bare[1:]] == [row[0] for row in rows[1:]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--prefix ap", ["apple", "apricot"]),
        ("--start b --end c", ["banana"]),
        ("--start b --count 1", ["banana"]),
        ("--primary cherry", ["cherry"]),
        ("-n 0", []),
        ("--prefix z", []),
    ],
)
def test_a_scan_keeps_to_its_bounds(line: TableLine, options: str, expected: list[str]) -> None:
    filled(line)
    assert [one["key"] for one in line.records(f"table scan {TABLE} {options}")] == expected


def test_a_scan_of_one_primary_key_is_bounded_by_secondary_keys(pairs: TableLine) -> None:
    for key in ("apple", "banana", "cherry"):
        pairs(f"table put {TABLE} shop {key} --secondary-key {key}")
        pairs(f"table put {TABLE} other {key} --secondary-key {key}")
    shown = pairs(f"table scan {TABLE} --primary shop --start b").splitlines()
    assert [row.split()[:2] for row in shown] == [
        ["KEY", "SECONDARY"], ["shop", "banana"], ["shop", "cherry"],
    ]  # fmt: skip
    assert pairs(f"table scan {TABLE} --no-values --output raw --prefix s --count 1") == (
        "shop\tapple\n"
    )


def test_entries_are_printed_in_every_form(line: TableLine, tmp_path: Path) -> None:
    filled(line)
    records = line.records(f"table scan {TABLE}")
    assert [one["value"] for one in records] == ["0", "1", "2", "3"]
    documents = yaml.safe_load_all(line(f"table scan {TABLE} --output yaml"))
    assert list(documents) == records
    assert line(f"table scan {TABLE} -o raw") == "0\n1\n2\n3\n"
    assert line(f"table scan {TABLE} -o raw --no-values --count 2") == "apple\napricot\n"
    template = r"{key}={value}|{value_base64} {size} {expires_ms}{expires}\n"
    assert line(f"table scan {TABLE} --count 1 --format", template) == "apple=0|MA== 1 0\n"
    bare = line.records(f"table scan {TABLE} --no-values --count 1")
    assert bare == [{k: v for k, v in records[0].items() if k != "value"}]
    out = tmp_path / "entries.json"
    assert line(f"table scan {TABLE} --json --file {out}") == ""
    assert [json.loads(one) for one in out.read_text().splitlines()] == records


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_entries_are_printed_in_columns_of_arrow(
    line: TableLine, tmp_path: Path, form: str
) -> None:
    filled(line)
    line(f"table put {TABLE} durian 4 --ttl 5s")
    out = tmp_path / "entries"
    line(f"table scan {TABLE} --output {form} --file {out}")
    data = out.read_bytes()
    found = pa.ipc.open_stream(data).read_all() if form == "arrow" else pq.read_table(out)
    assert found.column_names == ["key", "value", "version", "expires_ms"]
    assert found["key"].to_pylist() == [b"apple", b"apricot", b"banana", b"cherry", b"durian"]
    assert found["value"].to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    assert found["expires_ms"].to_pylist()[:4] == [None] * 4
    assert found["expires_ms"].cast(pa.int64()).to_pylist()[4] == 5000
    line(f"table scan {TABLE} --output {form} --no-values --prefix z --file {out}")
    empty = pa.ipc.open_stream(out.read_bytes()).read_all() if form == "arrow" else None
    assert empty is None or empty.column_names == ["key", "version", "expires_ms"]


def test_pairs_have_a_column_for_each_part_of_the_key(pairs: TableLine, tmp_path: Path) -> None:
    pairs(f"table put {TABLE} shop 1 --secondary-key apple")
    out = tmp_path / "entries.parquet"
    pairs(f"table scan {TABLE} --output parquet --file {out}")
    (row,) = pq.read_table(out).to_pylist()
    assert (row["key"], row["secondary_key"], row["value"]) == (b"shop", b"apple", b"1")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--output parquet", 1),
        ("--json --format {key}", 1),
        ("--format {payload}", 2),
        ("--output length", 2),
        ("--prefix ? --base64-keys", 1),
        ("--primary apple --prefix a", 1),
    ],
)
def test_options_that_make_no_sense_are_refused(line: TableLine, options: str, code: int) -> None:
    assert line(f"table scan {TABLE} {options}", code=code) == ""


# --- watches --------------------------------------------------------------------------------------


def test_a_watch_prints_all_entries_and_then_changes(line: TableLine) -> None:
    line.controller.now_ms = 1_700_000_000_000
    filled(line)
    line(f"table put {TABLE} apple 9")
    line(f"table remove {TABLE} cherry")
    line(f"table seal {TABLE}")
    snapshot = line.records(f"table watch {TABLE}")
    history = line.records(f"table watch {TABLE} --from earliest")
    assert sorted((one["key"], one["value"]) for one in snapshot) == [
        ("apple", "9"), ("apricot", "1"), ("banana", "2"),
    ]  # fmt: skip
    assert len(history) == 6
    assert next(one for one in history if one["removed"])["key"] == "cherry"
    assert all(one["position"] for one in history)
    assert line(f"table watch {TABLE} --from now") == ""
    rest = line.records(f"table watch {TABLE} --from {history[2]['position']}")
    assert rest == history[3:]
    assert len(line.records(f"table watch {TABLE} --from earliest -n 2")) == 2


def test_changes_are_printed_in_columns_and_by_templates(line: TableLine) -> None:
    line(f"table put {TABLE} apple 1")
    line(f"table remove {TABLE} apple")
    line(f"table seal {TABLE}")
    rows = [row.split() for row in line(f"table watch {TABLE} --from earliest").splitlines()]
    assert rows[0] == ["TIME", "KEY", "VERSION", "VALUE"]
    assert [(row[1], row[3]) for row in rows[1:]] == [("apple", "1"), ("apple", "(removed)")]
    template = r"{op} {key}={value} {time_ms}{time}\n"
    told = line(f"table watch {TABLE} --from earliest --format", template)
    assert told == "put apple=1 0\nremove apple= 0\n"
    documents = list(yaml.safe_load_all(line(f"table watch {TABLE} --from earliest -o yaml")))
    assert [one["removed"] for one in documents] == [False, True]
    line(f"table watch {TABLE} --from later", code=2)
    line(f"table watch {TABLE} --json --format {{key}}", code=1)


# --- loads ----------------------------------------------------------------------------------------


def test_the_records_of_a_scan_are_loaded_into_another_table(
    line: TableLine, tmp_path: Path
) -> None:
    filled(line)
    line(f"table put {TABLE} /w== /w== --base64-keys")
    line("table create plant/copy")
    out = tmp_path / "entries.json"
    line(f"table scan {TABLE} --json --file {out}")
    told = line(f"table load plant/copy {out} --ttl 5s")
    found = line.records("table scan plant/copy")
    assert told == "loaded 5 entries into plant/copy\n"
    assert [(one.get("key"), one["value"]) for one in found] == [
        ("apple", "0"), ("apricot", "1"), ("banana", "2"), ("cherry", "3"), (None, "/w=="),
    ]  # fmt: skip
    assert {one["expires_ms"] for one in found} == {5000}


@pytest.mark.parametrize(
    ("options", "data", "expected"),
    [
        (r"--format lines --key-separator \t", b"a\t1\nb\t\xff\tx", {"a": "1", "b": "/wl4"}),
        ("--format json --key-field id", b'{"id": "a", "n": 1}\n\n', {"a": '{"id": "a", "n": 1}'}),
        ("--format csv --key-field id", b"id,n\na,1\n", {"a": '{"id": "a", "n": "1"}'}),
        ("--format lines --key-separator =", b"a=1\na=2", {"a": "2"}),
        ("", b'{"key":"a","value":"1"}\n\n{"key":"b","value_base64":"Mg=="}', {"a": "1", "b": "2"}),
        ("", b"", {}),
    ],
)
def test_entries_are_loaded_from_every_format(
    line: TableLine, tmp_path: Path, options: str, data: bytes, expected: dict[str, str]
) -> None:
    path = given(tmp_path, data)
    (told,) = line.records(f"table load {TABLE} {path} {options}")
    found = line.records(f"table scan {TABLE}")
    shown = {one["key"]: one.get("value", one.get("value_base64")) for one in found}
    assert shown == expected
    assert told["table"] == TABLE
    assert told["entries"] >= len(expected)


def test_pairs_are_loaded_from_records(pairs: TableLine, tmp_path: Path) -> None:
    record = b'{"key":"shop","secondary_key":"apple","value":"1","version":"0.0.0"}'
    path = given(tmp_path, record)
    pairs(f"table load {TABLE} {path}")
    assert pairs(f"table get {TABLE} shop --secondary-key apple") == "1\n"


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ("", b'{"key":"b"}'),
        ("", b'{"value":"b"}'),
        ("", b'{"key":"b","value":2}'),
        ("", b'{"key":"b","key_base64":"Yg==","value":"2"}'),
        ("", b'{"key_base64":"?","value":"2"}'),
        ("", b'{"key":"\\ud800","value":"2"}'),
        ("", b'{"key":"b","value":"2","color":"red"}'),
        ("", b'["b"]'),
        ("", b"nonsense"),
        ("", b"\xff"),
        ("--format lines --key-separator =", b"b"),
        ("--format lines --key-separator =", b"=b"),
        ("--format json --key-field id", b'{"n":1}'),
    ],
)
def test_a_wrong_line_is_named_and_the_entries_before_it_are_put(
    line: TableLine, tmp_path: Path, options: str, wrong: bytes
) -> None:
    first = {
        "": b'{"key":"a","value":"1"}\n',
        "--format l": b"a=1\n",
        "--format j": b'{"id":"a"}\n',
    }
    path = tmp_path / "given"
    path.write_bytes(first[options[:10]] + wrong + b"\n")
    line(f"table load {TABLE} {path} {options}", code=1)
    assert "line=2" in line.notes
    assert [one["key"] for one in line.records(f"table scan {TABLE}")] == ["a"]


@pytest.mark.parametrize(
    "options",
    [
        "--key-field id",
        "--format json",
        "--format csv",
        "--format lines",
        "--format lines --key-field id",
        "--format json --key-field id --key-separator =",
        "--ttl soon",
    ],
)
def test_a_load_that_makes_no_sense_is_refused(line: TableLine, options: str) -> None:
    line(f"table load {TABLE} none.json {options}", code=1)
    assert "none.json" not in line.notes


def test_a_load_in_several_batches_keeps_the_last_value_of_each_key(
    line: TableLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_load, "BATCH_COUNT", 3)
    path = given(tmp_path, b"".join(b"%d=%d\n" % (n % 4, n) for n in range(20)))
    told = line(f"table load {TABLE} {path} --format lines --key-separator =")
    assert told == f"loaded 20 entries into {TABLE}\n"
    assert line(f"table scan {TABLE} --output raw") == "16\n17\n18\n19\n"


def test_a_load_that_fails_tells_how_many_entries_are_durable(
    line: TableLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_load, "BATCH_COUNT", 2)
    updates = 0

    def sealed(at: str, message: object) -> SegmentSealed | None:
        nonlocal updates
        updates += isinstance(message, UpdateTable)
        return SegmentSealed("sealed") if updates > 2 and isinstance(message, UpdateTable) else None

    line.store.fault = sealed
    path = given(tmp_path, b"".join(b"k=%d\n" % n for n in range(9)))
    line(f"table load {TABLE} {path} --format lines --key-separator =", code=1)
    assert "sealed" in line.notes
    assert "loaded=4" in line.notes


def test_values_are_escaped_on_a_terminal(
    line: TableLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = given(tmp_path, b"\x1b[2J")
    line(f"table put {TABLE} evil --file", path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for command in ("get plant/latest evil", "scan plant/latest -o raw"):
        assert line(f"table {command}") == "\\x1b[2J\n"
    assert line(f"table scan {TABLE} --format {{value}}") == "\\x1b[2J"
