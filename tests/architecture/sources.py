"""The source files of the package, read as Python."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "django_ayework"


def files(*folders: Path) -> list[Path]:
    """Every source file; migrations are Django's own work."""
    found = [path for folder in folders or (PACKAGE,) for path in folder.rglob("*.py")]
    return sorted(path for path in found if "migrations" not in path.parts)


@cache
def parsed(words: str = "") -> list[tuple[str, ast.Module]]:
    """The path within the package, and the tree, of each file whose text has what this expression finds."""
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in files()}
    return [(path, ast.parse(text)) for path, text in texts.items() if re.search(words, text)]


def called(node: ast.AST) -> str:
    """The last name of what a call calls, or nothing."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")
