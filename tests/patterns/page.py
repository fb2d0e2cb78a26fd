"""The code of docs/guides/patterns.md, taken from the page itself, so that the two cannot differ."""

import re
from dataclasses import dataclass
from types import CodeType
from typing import Any

from tests.docs import FENCE, ROOT

PAGE = ROOT / "docs" / "guides" / "patterns.md"
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
#: A module of the app ``shop`` of the tests: types without a name of their own are called ``shop.…``, as a
#: reader's are who pastes them into an app of that name.
WORKS = "tests.app.works_of_the_page"


@dataclass(frozen=True)
class Block:
    """One fenced block: the file it is for (empty for code that uses it), and the code."""

    section: str
    file: str
    source: str
    line: int

    def code(self) -> CodeType:
        """Return the code, whose tracebacks lead to the page."""
        return compile("\n" * (self.line - 1) + self.source, str(PAGE), "exec")

    def run(self) -> dict[str, Any]:
        """Execute the code, and return all it has named."""
        names: dict[str, Any] = {}
        exec(self.code(), names)
        return names


def blocks() -> list[Block]:
    """Return every block of Python, in the order of the page."""
    text = PAGE.read_text()
    # Blocks are blanked, so that places stay.
    blank = FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    headings = [(match.start(), match[1]) for match in HEADING.finditer(blank)]
    found = []
    for match in FENCE.finditer(text):
        if match[3] == "python":
            section = [name for start, name in headings if start < match.start()][-1]
            file = re.match(r"# (shop/\w+\.py)\n", match[4])
            line = text.count("\n", 0, match.start(4)) + 1
            found.append(Block(section, file[1] if file else "", match[4], line))
    return found


def block(section: str, file: str) -> Block:
    """Return the one block of a section for a file."""
    [found] = [block for block in blocks() if (block.section, block.file) == (section, file)]
    return found
