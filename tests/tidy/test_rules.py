"""Each rule finds what it forbids, in a bad sample."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from anabranch.cli.catalogue import Command, Group
from tidy import clusters, dependencies, lock, shape, texts
from tidy.commands import command_names
from tidy.source import SourceFile


def code(text: str, path: str = "libs/x/part.py") -> SourceFile:
    return SourceFile(path, text)


def document(text: str) -> SourceFile:
    return SourceFile("docs/page.md", text)


LONG = '"""M."""\n\n\ndef long() -> None:\n' + "    x = 1\n" * 60


def test_a_function_and_a_file_over_their_limits_are_found() -> None:
    assert shape.oversizes([code(LONG)]) == {"libs/x/part.py::long": 61}
    assert shape.oversizes([code("x = 1\n" * 451)]) == {"libs/x/part.py": 451}
    assert shape.oversizes([code("x = 1\n" * 450)]) == {}
    longer = [SourceFile("tests/unit/test_x.py", "x = 1\n" * lines) for lines in (500, 501)]
    assert shape.oversizes(longer) == {"tests/unit/test_x.py": 501}
    assert shape.oversizes([code(LONG.replace("    x = 1\n", "", 1))]) == {}


@pytest.mark.parametrize(
    ("found", "allowed", "wrong"),
    [
        ({"a": 70}, {}, ["a has 70 lines: split it"]),
        ({"a": 71}, {"a": 70}, ["a has 71 lines: split it"]),
        ({"a": 69}, {"a": 70}, ["a has shrunk: lower its exception"]),
        ({}, {"a": 70}, ["a has shrunk: lower its exception"]),
        ({"a": 70}, {"a": 70}, []),
    ],
)
def test_an_exception_may_only_shrink(
    found: dict[str, int], allowed: dict[str, int], wrong: list[str]
) -> None:
    assert shape.ratchet(found, allowed) == wrong


def test_a_listed_exception_must_still_be_needed() -> None:
    assert shape.unlisted_or_unneeded(["a"], ["a"]) == []
    assert shape.unlisted_or_unneeded(["a"], []) == ["a"]
    assert shape.unlisted_or_unneeded([], ["a"]) == ["a: drop its exception"]


def test_six_positional_parameters_are_too_many() -> None:
    method = "class A:\n    def f(self, {}):\n        pass\n"

    assert shape.long_parameter_lists([code("def f(a, b, c, d, e, g): pass")])
    assert shape.long_parameter_lists([code(method.format("a, b, c, d, e, g"))])
    assert not shape.long_parameter_lists([code(method.format("a, b, c, d, e, *, g"))])


@pytest.mark.parametrize(
    "name", ["StreamManager", "LogImpl", "BaseLog", "ChunkFactory", "Helpers", "SettingsBase"]
)
def test_a_class_name_that_says_nothing_is_found(name: str) -> None:
    assert shape.banned_names([code(f"class {name}: pass")])


def test_a_module_name_that_says_nothing_is_found() -> None:
    assert shape.banned_names([code("", "libs/x/utils.py")])
    assert shape.banned_names([code("", "libs/helpers/x.py")])
    assert not shape.banned_names([code("class Baseline: pass", "libs/x/base.py")])


@pytest.mark.parametrize("start", ["[{}]", "f({})", "f(*({}))", "f(\n    {},\n)"])
def test_a_start_that_imports_from_the_working_directory_is_found(start: str) -> None:
    bare, safe = 'sys.executable, "-m", "x"', 'sys.executable, "-P", "-m", "x"'

    assert shape.starts_from_anywhere([code(start.format(bare))])
    assert not shape.starts_from_anywhere([code(start.format(safe))])


@pytest.mark.parametrize(
    "kind", ["", " Exception", " BaseException as e", " (KeyError, Exception)"]
)
def test_a_handler_that_catches_everything_in_order_to_carry_on_is_found(kind: str) -> None:
    handler = "def f():\n    try:\n        g()\n    except{}:\n        {}\n"

    assert shape.catches_everything([code(handler.format(kind, "pass"))]) == ["libs/x/part.py::f"]
    assert not shape.catches_everything([code(handler.format(kind, "raise"))])
    assert not shape.catches_everything([code(handler.format(" KeyError", "pass"))])


@pytest.mark.parametrize(
    "tasks",
    [
        "for one in many:\n            group.create_task(ask(one))",
        "tasks = [group.create_task(ask(one)) for one in many]",
        "tasks = {one: group.create_task(ask(one)) for one in many}",
    ],
)
def test_tasks_that_are_started_in_a_loop_are_found(tasks: str) -> None:
    text = (
        f"async def ask_all(many):\n    async with asyncio.TaskGroup() as group:\n        {tasks}\n"
    )
    assert shape.bare_fan_outs([code(text)]) == ["libs/x/part.py::ask_all"]
    assert not shape.bare_fan_outs([code(text.replace("ask_all", "serve"))])
    assert not shape.bare_fan_outs([code(text.replace("create_task", "keep"))])


SCALES = """
@pytest.fixture(scope="{}")
async def client():
    async with embedded_cluster(UpSettings()) as cluster:
        yield connect(cluster)

async def prepared(client): ...

def test_one(client): ...
def test_two(url, client): prepared(client)
def test_three(url): ...
"""


def test_tests_that_start_a_cluster_are_counted_and_a_shared_one_once() -> None:
    path = "tests/integration/test_scales.py"

    assert clusters.cluster_starts([code(SCALES.format("function"), path)]) == {path: 2}
    assert clusters.cluster_starts([code(SCALES.format("module"), path)]) == {path: 1}
    assert clusters.cluster_starts([code("def test_three(url): ...", path)]) == {}


def test_the_count_of_clusters_may_only_fall() -> None:
    assert clusters.growth({"a": 2}, {"a": 2}) == []
    assert clusters.growth({"a": 2}, {"a": 1}) == ["a starts 2 clusters, not 1: share one"]
    assert clusters.growth({}, {"a": 1}) == ["a starts only 0 clusters: lower its exception"]


def test_a_module_without_a_docstring_is_found() -> None:
    assert shape.modules_without_docstring([code("x = 1\n"), code("")]) == ["libs/x/part.py"]


def test_a_link_or_path_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "there.md").write_text("")

    assert not texts.broken_links(document("[x](there.md#part) `docs/{there,*}.md`"), tmp_path)
    assert texts.broken_links(document("[x](gone.md)"), tmp_path)
    assert texts.broken_links(document("in `docs/gone.py`"), tmp_path)
    assert texts.broken_links(document("in `docs/{there,gone}.md`"), tmp_path)


def test_a_make_target_that_does_not_exist_is_found() -> None:
    targets = texts.makefile_targets("BIN := x\ntest: setup\n\tpytest\ncrash-demo:\n")

    assert targets == {"test", "crash-demo"}
    assert not texts.unknown_targets(
        document("```\nmake crash-demo  # x\n```\n`make test`"), targets
    )
    assert texts.unknown_targets(document("run `make all`"), targets) == ["docs/page.md: make all"]


def test_a_command_that_does_not_exist_is_found() -> None:
    create, up = Command("create", "m:f", "Create."), Command("up", "m:f", "Start.")
    commands = command_names([Group("scope", "Scopes.", (create,)), up])

    assert commands == {"up", "scope", "scope create"}
    good = "```sh\n.venv/bin/anabranch up --json\necho x | anabranch scope create demo\n```\n"
    assert not texts.unknown_commands(document(good), commands)
    assert texts.unknown_commands(document("`anabranch explode now`"), commands)
    assert texts.unknown_commands(document("```\ncat x | anabranch pour\n```\n"), commands)


@pytest.mark.parametrize("folder", ["home", "root", "work", "Users"])
def test_a_path_of_one_machine_is_found(folder: str) -> None:
    assert texts.machine_paths(document(f"see /{folder}/me there"))


@pytest.mark.parametrize("words", [("https://", "pypi", ".org"), ("--extra-index", "-", "url")])
def test_a_package_registry_is_found(words: tuple[str, ...]) -> None:
    assert texts.registry_names(document("from " + "".join(words)))


def test_a_word_that_the_glossary_avoids_is_found() -> None:
    avoided = texts.avoided_words("| chunk | an object in tier 2 (not *blob, tier-2 file*) |")

    assert avoided == {"blob", "tier-2 file"}
    assert texts.uses_of_avoided_words(document("it writes a Blob"), avoided)
    assert not texts.uses_of_avoided_words(document("it writes `blob` and blobby"), avoided)


def test_a_lock_that_lags_behind_a_declaration_is_found() -> None:
    locked = lock.locked_versions(
        "msgspec==0.22.0 \\\n    --hash=x\nwinonly==1.0 ; sys_platform == 'win32' \\\n"
    )

    assert locked == {"msgspec": ["0.22.0"]}
    assert not lock.drift([Requirement("msgspec>=0.19")], locked)
    assert lock.drift([Requirement("msgspec>=0.23")], locked)
    assert lock.drift([Requirement("absent")], locked)
    assert not lock.drift([Requirement("winonly; sys_platform == 'win32'")], locked)


def test_an_import_that_the_part_does_not_declare_is_found() -> None:
    file = code(
        "import json\nimport mmh3.x\nfrom anabranch.common import a\nimport anabranch.x.b\n"
    )
    names = {"mmh3": ["mmh3"]}
    everything = ["mmh3>=5", "anabranch-common==0.1.0"]
    assert dependencies.undeclared_imports("x", [file], everything, names) == []
    found = dependencies.undeclared_imports("x", [file], [], names)
    assert [line.rpartition(" ")[2] for line in found] == ["anabranch-common", "mmh3"]
