"""Checks README.md and docs/: links inside the repository resolve, and Python examples compile."""

import ast
import doctest
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\n]*)\n(.*?)^[ \t]*\2[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:[ \t]*(\S+)", re.MULTILINE)


def main() -> int:
    problems = [problem for page in PAGES for check in (bad_links, bad_examples) for problem in check(page)]
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(PAGES)} pages, {len(problems)} problems")
    return 1 if problems else 0


def bad_links(page: Path) -> Iterator[str]:
    for match in LINK.finditer(prose(page)):
        target = match[1] or match[2]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            yield f"{page.relative_to(ROOT)}: {target} leads nowhere"
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            yield f"{page.relative_to(ROOT)}: {target}: the page has no such heading"


def bad_examples(page: Path) -> Iterator[str]:
    text = page.read_text()
    for match in FENCE.finditer(text):
        if match[3].split(" ")[0] not in {"python", "py", "pycon"}:
            continue
        first = text.count("\n", 0, match.start(4)) + 1
        for line, source in examples(textwrap.dedent(match[4])):
            try:
                compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            except SyntaxError as error:
                yield f"{page.relative_to(ROOT)}:{first + line + (error.lineno or 1) - 1}: {error.msg}"


def examples(block: str) -> list[tuple[int, str]]:
    if not block.lstrip().startswith(">>>"):
        return [(0, block)]
    return [(example.lineno, example.source) for example in doctest.DocTestParser().get_examples(block)]


def prose(page: Path) -> str:
    """The page without its code."""
    return re.sub(r"(`+)[^`\n]+\1", "", FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The headings as GitHub names them, and explicit anchors."""
    text = FENCE.sub("", page.read_text())
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[f"{slug}-{found[slug]}" if slug in found else slug] = 0
        found[slug] += 1
    return set(found) | set(re.findall(r"(?:id|name)=\"([^\"]+)\"", text))


if __name__ == "__main__":
    sys.exit(main())
