"""Checks README.md and docs/: links inside the repository resolve, and each block of code is valid.

Python compiles, JSON, TOML, YAML and INI are read, shells parse, and each ``manage.py`` command exists with
the options it is given. Blocks of ``text`` are not checked.
"""

import argparse
import ast
import configparser
import doctest
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import django
import yaml
from django.core.management import CommandError, get_commands, load_command_class

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\n]*)\n(.*?)^[ \t]*\2[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:[ \t]*(\S+)", re.MULTILINE)


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    django.setup()
    problems = [problem for page in PAGES for check in (bad_links, bad_examples) for problem in check(page)]
    print(*problems, sep="\n", end="\n" if problems else "")
    blocks = ", ".join(f"{count} {language}" for language, count in counted.most_common())
    print(f"{len(PAGES)} pages, {counted.total()} blocks of code ({blocks}), {len(problems)} problems")
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
        language = match[3].split(" ")[0]
        if language.startswith("{"):
            continue
        place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start(4)) + 1}"
        if language not in READERS:
            yield f"{place}: a block of {language or 'no language'}; expected one of {', '.join(READERS)}"
            continue
        try:
            READERS[language](textwrap.dedent(match[4]))
        except (ValueError, SyntaxError, configparser.Error, yaml.YAMLError, CommandError) as error:
            yield f"{place}: {error}"
        counted[language] += 1


def read_python(block: str) -> None:
    for line, source in examples(block):
        compile("\n" * line + source, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def read_yaml(block: str) -> None:
    list(yaml.safe_load_all(block))


def read_ini(block: str) -> None:
    configparser.RawConfigParser(strict=False, allow_no_value=True).read_string(block)


def read_shell(block: str) -> None:
    done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    one_line = block.replace("\\\n", " ")
    for name, arguments in re.findall(r"manage\.py (ayework_\w+)((?:[^\S\n]+[^\s|;&>#)]+)*)", one_line):
        check_command(name, arguments)


def read_console(block: str) -> None:
    read_shell("\n".join(re.findall(r"^\$ (.+(?:\\\n.+)*)", block, re.MULTILINE)))


def check_command(name: str, arguments: str) -> None:
    """Raise when there is no such command, or it has no such option."""
    if name not in get_commands():
        raise ValueError(f"there is no command {name}")
    parser = load_command_class("django_ayework", name).create_parser("manage.py", name)
    known = {option for action in parser._actions for option in action.option_strings}
    parsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for subparser in (each for action in parsers for each in action.choices.values()):
        known |= {option for action in subparser._actions for option in action.option_strings}
    if unknown := [option for option in re.findall(r"(?<!\S)--[\w-]+", arguments) if option not in known]:
        raise ValueError(f"{name} has no option {', '.join(unknown)}")


def unchecked(block: str) -> None:
    """Accept output, HTML and files that nothing here can read."""


READERS: dict[str, Callable[[str], object]] = {
    "python": read_python,
    "pycon": read_python,
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": read_yaml,
    "ini": read_ini,
    "sh": read_shell,
    "console": read_console,
    "text": unchecked,
    "html": unchecked,
    "sql": unchecked,
    "dockerfile": unchecked,
    "nginx": unchecked,
    "diff": unchecked,
    "promql": unchecked,
}
counted: Counter[str] = Counter()


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
