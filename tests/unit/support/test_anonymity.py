"""Names become hashes that stay the same throughout a bundle."""

import json

from anabranch.cli.support.anonymity import Anonymizer

SALT = b"salt"


def test_names_are_replaced_in_records_wherever_they_were_learned() -> None:
    a = Anonymizer(SALT)
    found = a.record({"scope": "demo", "stream": "plant.one", "why": "plant.one waits", "n": 1})
    assert isinstance(found, dict)
    assert found["stream"] == a.name("plant.one")
    assert found["why"] == f"{a.name('plant.one')} waits"
    assert (found["scope"], found["n"]) == (a.name("demo"), 1)


def test_a_path_and_a_segment_keep_their_form() -> None:
    a = Anonymizer(SALT)
    demo, numbers = a.name("demo"), a.name("numbers")
    assert a.record({"segment": "demo/numbers/0.#epoch.3"}) == {
        "segment": f"{demo}/{numbers}/0.#epoch.3"
    }
    assert a.record({"group": "group:demo/g"}) == {"group": f"group:{demo}/{a.name('g')}"}
    assert a.record({"streams": ["demo/numbers"]}) == {"streams": [f"{demo}/{numbers}"]}


def test_names_in_subjects_are_replaced_also_those_with_dots() -> None:
    a = Anonymizer(SALT)
    found = a.record({"subject": "ana.evt.7.stream.demo.plant=one"})
    assert found == {"subject": f"ana.evt.7.stream.{a.name('demo')}.{a.name('plant.one')}"}


def test_the_name_of_a_table_is_replaced_in_every_form() -> None:
    a = Anonymizer(SALT)
    demo, latest = a.name("demo"), a.name("latest")
    assert a.record({"table": "latest"}) == {"table": latest}
    assert a.record({"aggregate": "table:demo/latest"}) == {"aggregate": f"table:{demo}/{latest}"}
    found = a.record({"subject": "ana.evt.7.kvt.demo.latest"})
    assert found == {"subject": f"ana.evt.7.kvt.{demo}.{latest}"}
    assert a.text("demo/latest~ waits") == f"{demo}/{latest}~ waits"


def test_a_line_of_a_log_keeps_its_text_and_loses_names() -> None:
    a = Anonymizer(SALT)
    line = {"event": "the stream demo waits", "stream": "demo/x", "error": "x of demo is away"}
    found = json.loads(a.line(json.dumps(line)))
    assert found["event"] == line["event"]  # constant text: its words are not names
    assert "demo" not in found["stream"] + found["error"]
    assert a.line("[1] 2026 [ERR] demo.x failed") == (
        f"[1] 2026 [ERR] {a.name('demo')}.{a.name('x')} failed"
    )


def test_hashes_differ_from_bundle_to_bundle() -> None:
    assert Anonymizer(b"1").name("demo") != Anonymizer(b"2").name("demo")
    assert "demo" not in Anonymizer(b"1").name("demo")


def test_paths_of_the_machine_are_replaced_in_texts() -> None:
    a = Anonymizer(SALT, {"/srv/me/data": "DATA_DIR", "/srv/me": "HOME", "": "nothing"})
    assert a.text("/srv/me/data/logs and /srv/me/x") == "DATA_DIR/logs and HOME/x"
