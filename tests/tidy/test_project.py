"""The rules, applied to the project as it is."""

import json
import tomllib
from importlib.metadata import packages_distributions

from anabranch.cli.catalogue import ENTRIES
from tidy import clusters, dependencies, lock, shape, texts
from tidy.commands import command_names, wrong_rows
from tidy.source import ROOT, documents, project_files, python_files

EXCEPTIONS = json.loads((ROOT / "tests/tidy/exceptions.json").read_text())
"""What is over a limit today; every entry must still be needed, and none may grow."""


PARTS_MEASURED = ("cli", "client", "common", "spark", "controller", "segstore")


def test_no_file_or_function_outgrows_its_limit() -> None:
    assert shape.ratchet(shape.oversizes(python_files()), EXCEPTIONS["lines"]) == []


def test_tests_start_no_more_clusters_than_they_did() -> None:
    found = clusters.cluster_starts(python_files())

    assert clusters.growth(found, EXCEPTIONS["clusters"]) == []


def test_no_function_takes_more_than_five_positional_parameters() -> None:
    found = shape.long_parameter_lists(python_files())

    assert shape.unlisted_or_unneeded(found, EXCEPTIONS["parameters"]) == []


def test_no_module_or_class_has_a_name_that_says_nothing() -> None:
    found = shape.banned_names(python_files())

    assert shape.unlisted_or_unneeded(found, EXCEPTIONS["names"]) == []


def test_no_module_is_started_with_the_working_directory_on_its_path() -> None:
    files = [file for file in python_files() if not file.path.startswith("bench/")]

    assert shape.starts_from_anywhere(files) == []


def test_only_named_edges_catch_every_error_in_order_to_carry_on() -> None:
    files = [file for file in python_files() if file.path.startswith(("libs/", "services/"))]
    found = shape.catches_everything(files)

    assert shape.unlisted_or_unneeded(found, EXCEPTIONS["edges"]) == []


def test_what_is_done_to_many_things_at_once_raises_errors_by_their_names() -> None:
    assert not shape.bare_fan_outs(python_files())


def test_every_module_says_what_it_is_for() -> None:
    assert shape.modules_without_docstring(python_files()) == []


def test_every_link_and_path_in_the_documents_leads_somewhere() -> None:
    assert [wrong for file in documents() for wrong in texts.broken_links(file, ROOT)] == []


def test_every_make_target_in_the_documents_exists() -> None:
    targets = texts.makefile_targets((ROOT / "Makefile").read_text())

    assert [wrong for file in documents() for wrong in texts.unknown_targets(file, targets)] == []


def test_every_command_in_the_documents_exists() -> None:
    commands = command_names(ENTRIES)

    assert [wrong for file in documents() for wrong in texts.unknown_commands(file, commands)] == []


def test_every_row_of_the_catalogue_tells_what_its_command_tells() -> None:
    assert wrong_rows(ENTRIES) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [wrong for file in project_files() for wrong in texts.machine_paths(file)] == []


def test_no_file_names_a_package_registry() -> None:
    assert [wrong for file in project_files() for wrong in texts.registry_names(file)] == []


def test_the_documents_avoid_the_words_that_the_glossary_avoids() -> None:
    avoided = texts.avoided_words((ROOT / "GLOSSARY.md").read_text())
    others = [file for file in documents() if file.path != "GLOSSARY.md"]

    assert avoided
    assert [wrong for file in others for wrong in texts.uses_of_avoided_words(file, avoided)] == []


def test_the_lock_holds_what_the_parts_declare() -> None:
    locked = lock.locked_versions((ROOT / "requirements.lock").read_text())

    assert lock.drift(lock.declared_requirements(ROOT), locked) == []


def test_the_benchmark_declares_what_it_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked, peers = project["dependency-groups"]["bench"], project["tool"]["bench"]["peers"]
    parts = [f"anabranch-{name}" for name in PARTS_MEASURED]
    files = [file for file in python_files() if file.path.startswith("bench/")]

    found = dependencies.undeclared_imports(
        "bench",
        files,
        [*locked, *peers, *parts],
        {"confluent_kafka": ["confluent-kafka"], **packages_distributions(), "bench": parts},
    )

    assert files
    assert found == []


def test_every_part_declares_what_it_imports() -> None:
    distributions = packages_distributions()
    wrong = []
    for path in sorted(ROOT.glob("*/*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        optional = project.get("optional-dependencies", {}).values()
        declared = [*project["dependencies"], *(text for group in optional for text in group)]
        folder = path.parent.relative_to(ROOT).as_posix()
        files = [file for file in python_files() if file.path.startswith(f"{folder}/src/")]
        assert files or project["name"] == dependencies.OWN_NAMESPACE
        wrong += dependencies.undeclared_imports(path.parent.name, files, declared, distributions)
    assert wrong == []
