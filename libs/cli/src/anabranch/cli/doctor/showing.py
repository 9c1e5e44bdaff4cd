"""How findings are shown: a table and a summary for people, a record each for programs."""

from collections import defaultdict
from collections.abc import Sequence

from anabranch.cli.doctor.examination import Examined
from anabranch.cli.doctor.finding import Verdict
from anabranch.cli.figures import counted
from anabranch.cli.output import Output

COLUMNS = ("verdict", "check", "finding")
Row = tuple[str, str, str]


def show(output: Output, found: Sequence[Examined]) -> None:
    """Write the findings."""
    output.rows(COLUMNS, rows_of(found), [one.record for one in found], whole="check")
    if not output.for_programs:
        output.done(summary(found), {})


def summary(found: Sequence[Examined]) -> str:
    """``39 checks: 34 ok, 2 warnings, 1 failure, 2 skipped``."""
    counts = dict.fromkeys(Verdict, 0)
    for one in found:
        counts[one.finding.verdict] += 1
    told = [f"{counts[Verdict.OK]} ok"]
    if counts[Verdict.NOTE]:
        told.append(counted(counts[Verdict.NOTE], "note"))
    told += [counted(counts[one], one.value) for one in (Verdict.WARNING, Verdict.FAILURE)]
    told += [f"{counts[Verdict.SKIPPED]} skipped"]
    return f"{counted(len(found), 'check')}: {', '.join(told)}"


def rows_of(found: Sequence[Examined]) -> list[Row]:
    """The table. Checks that are skipped for one reason share a row, after all others."""
    rows: list[Row] = []
    skipped: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one in found:
        finding = one.finding
        if finding.verdict is Verdict.SKIPPED:
            skipped[finding.text, finding.remedy].append(one.name)
        else:
            rows.append(_row(finding.verdict, one.name, finding.text, finding.remedy))
    for (reason, remedy), names in skipped.items():
        alone = len(names) == 1
        check = names[0] if alone else counted(len(names), "check")
        text = reason if alone else f"{reason}: {', '.join(names)}"
        rows.append(_row(Verdict.SKIPPED, check, text, remedy))
    return rows


def _row(verdict: Verdict, check: str, text: str, remedy: str) -> Row:
    return verdict.value, check, f"{text}\n→ {remedy}" if remedy else text
