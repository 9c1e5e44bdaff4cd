"""Writes a report as one HTML page. Pure.

The page needs no other host: it has its style in itself, and its plots beside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from anabranch.cli.demo.report.page import Check, Failure, Measure, Page, Picture

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  color: #222; background: #fff; max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
.begun, .how, figcaption { color: #595959; }
.begun { margin: 0 0 1.25rem; }
.how { font-size: .9rem; }
.verdict { padding: .75rem 1rem; border-left: .4rem solid; font-weight: 600; margin: 0 0 1rem; }
.verdict.right { border-color: #00795a; background: #e6f4ef; }
.verdict.wrong { border-color: #b04a00; background: #fbeee4; }
.verdict p { margin: .25rem 0 0; font-weight: 400; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .9rem .4rem 0;
  border-bottom: 1px solid #e3e3e3; }
thead th.value { text-align: right; padding-right: .9rem; }
thead th { color: #595959; font-weight: 600; font-size: .9rem; }
tbody th { font-weight: 400; }
th.part { font-weight: 600; padding-top: 1.1rem; }
td.value { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.unit { width: 45%; } th.check { width: 56%; }
td.result { white-space: nowrap; font-weight: 600; }
.passed { color: #00694e; } .failed { color: #a33f00; } .open { color: #595959; }
figure { margin: 1.5rem 0 0; } img { width: 100%; height: auto; }
figcaption { font-size: .9rem; }
"""
_MARKS: Mapping[str, tuple[str, str]] = {
    "passed": ("passed", "✓"),
    "FAILED": ("failed", "✗"),
    "skipped": ("open", "–"),
    "not reached": ("open", "–"),
}


def html_of(page: Page, folder: Path | None = None) -> str:
    """The page as a document that lies in `folder`, with its pictures there or below."""
    parts = (
        f"<h1>{escape(page.title)}</h1>",
        f'<p class="begun">Begun {escape(page.begun)}</p>',
        _verdict(page),
        f"<p>{escape(page.lead)}</p>",
        _section("Checks", _checks(page.checks)),
        _section("Figures", _measures(page.measures) if page.measures else ""),
        _section("Plots", "\n".join(_picture(each, folder) for each in page.pictures)),
        _section("Versions and machine", _machine(page.machine)),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)}: {'passed' if page.is_right else 'FAILED'}</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _verdict(page: Page) -> str:
    style = "right" if page.is_right else "wrong"
    return f'<div class="verdict {style}">{escape(page.verdict)}{_failure(page.failure)}</div>'


def _failure(failure: Failure | None) -> str:
    if failure is None:
        return ""
    remedy = f"<p>Try: {escape(failure.remedy)}</p>" if failure.remedy else ""
    return f"<p>{escape(failure.text)}</p>{remedy}"


def _section(title: str, content: str) -> str:
    """A section; none without content."""
    return f"<h2>{escape(title)}</h2>\n{content}" if content else ""


def _checks(checks: Sequence[Check]) -> str:
    return _table(("Check", "Result", "Found"), map(_check, checks))


def _check(check: Check) -> str:
    style, mark = _MARKS[check.result.value]
    return (
        f'<tr><th scope="row">{escape(check.name)}<div class="how">{escape(check.how)}</div></th>'
        f'<td class="result {style}">{mark} {escape(check.result.value)}</td>'
        f"<td>{escape(check.found)}</td></tr>"
    )


def _measures(measures: Sequence[Measure]) -> str:
    rows = []
    for part, of_part in groupby(measures, key=lambda measure: measure.part):
        rows.append(f'<tr><th scope="rowgroup" class="part" colspan="3">{escape(part)}</th></tr>')
        rows += [
            f'<tr><th scope="row">{escape(each.name)}</th>'
            f'<td class="value">{escape(each.value)}</td>'
            f'<td class="unit">{escape(each.unit)}</td></tr>'
            for each in of_part
        ]
    return _table(("Figure", "Value", "Unit"), rows)


def _picture(picture: Picture, folder: Path | None) -> str:
    path = picture.path
    place = path.name
    if folder is not None and path.is_relative_to(folder):
        place = path.relative_to(folder).as_posix()
    name, caption = escape(place, quote=True), escape(picture.caption)
    return (
        f'<figure><img src="{name}" alt="{escape(picture.caption, quote=True)}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _machine(machine: Mapping[str, str | int | None]) -> str:
    rows = [
        f'<tr><th scope="row">{escape(name.replace("_", " "))}</th>'
        f"<td>{escape(str(value))}</td></tr>"
        for name, value in machine.items()
    ]
    return f"<table>\n<tbody>\n{chr(10).join(rows)}\n</tbody>\n</table>" if rows else ""


def _table(columns: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(
        f'<th scope="col" class="{column.lower()}">{escape(column)}</th>' for column in columns
    )
    return (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows)
        + "\n</tbody>\n</table>"
    )  # fmt: skip
