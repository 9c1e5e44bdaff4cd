"""docs/command.md shows the commands as they are."""

from tidy import command_document


def test_the_reference_of_the_command_is_that_of_the_code() -> None:
    text = command_document.PATH.read_text()
    assert command_document.rendered() == text, "run make command-doc and commit it"


def test_every_option_has_a_meaning() -> None:
    rows = [line for line in command_document.rendered().splitlines() if line.startswith("| `--")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []
