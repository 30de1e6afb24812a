"""Rules for templates and scripts that keep the Content-Security-Policy strict and untrusted text escaped."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from wakeful import dashboard

ROOT = Path(dashboard.__file__).parent
TEMPLATES = sorted((ROOT / "templates").glob("**/*.html"))
SCRIPTS = sorted((ROOT / "static").glob("*.js"))
STYLES = sorted((ROOT / "static").glob("*.css"))
MODULES = sorted(ROOT.glob("**/*.py"))
#: Modules that build markup: charts, icons, and regions of templates that are rendered already.
BUILD_MARKUP = {"markdown.py", "charts.py", "icons.py", "render.py"}

_IN_TEMPLATES = {
    "inline script": r"<script(?![^>]*\bsrc=)[^>]*>",
    "inline style": r"<style\b|\sstyle\s*=",
    "event handler": r"\son[a-z]+\s*=",
    "unescaped value": r"\|\s*safe\b|autoescape\s+false",
    "javascript link": r"javascript:",
    "address of another host": r"""\b(?:src|href|action)\s*=\s*["']?(?:https?:)?//""",
    "link that gives the new page access to this one": r"""target="_blank"(?![^>]*\brel="[^"]*noopener)""",
}
_IN_SCRIPTS = {
    "markup from text": r"\.innerHTML\s*=|\.outerHTML\s*=|insertAdjacentHTML|document\.write|srcdoc",
    "code from text": r"\beval\(|new Function\(|setTimeout\(\s*[\"'`]",
    "address of another host": r"""["'`](?:https?:)?//[a-z]""",
    "style attribute": r"""setAttribute\(\s*["']style""",
}


def _found(files: list[Path], rules: dict[str, str]) -> list[str]:
    return [
        f"{file.name}: {name}: {match[0]}"
        for file in files
        for name, rule in rules.items()
        for match in re.finditer(rule, file.read_text())
    ]


def test_templates_have_no_inline_code_and_escape_everything() -> None:
    assert _found(TEMPLATES, _IN_TEMPLATES) == []


def test_scripts_build_no_markup_from_text() -> None:
    assert _found(SCRIPTS, _IN_SCRIPTS) == []


def test_scripts_import_each_other_in_no_circle() -> None:
    imports = {
        file.name: {*re.findall(r"""(?:from|import\() ?["']\./([\w.]+)["']""", file.read_text())}
        for file in SCRIPTS
    }
    assert "sign_in_again.js" in imports["api.js"], "imports at run time count too"
    order = TopologicalSorter(imports)
    order.prepare()  # raises CycleError


def test_styles_load_nothing_from_other_hosts() -> None:
    assert _found(STYLES, {"address": r"url\(\s*[\"']?(?!data:)|@import"}) == []


def test_only_charts_icons_and_regions_build_markup() -> None:
    builders = {file.name for file in MODULES if re.search(r"\bMarkup\(|HTMLResponse\(", file.read_text())}
    assert builders == BUILD_MARKUP


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (_IN_TEMPLATES, "<script>x</script>"),
        (_IN_TEMPLATES, '<p style="color: red">'),
        (_IN_TEMPLATES, '<p onclick="x">'),
        (_IN_TEMPLATES, "{{ name | safe }}"),
        (_IN_TEMPLATES, '<img src="https://a.example/b.png">'),
        (_IN_TEMPLATES, '<a href="/x" target="_blank">'),
        (_IN_SCRIPTS, "element.innerHTML = text"),
        (_IN_SCRIPTS, 'fetch("https://a.example/")'),
    ],
)
def test_the_rules_find_what_they_forbid(rules: dict[str, str], text: str) -> None:
    assert any(re.search(rule, text) for rule in rules.values())
