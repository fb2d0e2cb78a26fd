"""The source files of the package, read as Python."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "django_ayework"


def files(*folders: Path) -> list[Path]:
    """Every source file; migrations are Django's own work."""
    found = [path for folder in folders or (PACKAGE,) for path in folder.rglob("*.py")]
    return sorted(path for path in found if "migrations" not in path.parts)


@cache
def parsed() -> list[tuple[str, ast.Module]]:
    """Each file's path within the package, and its tree."""
    return [(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())) for path in files()]


def called(node: ast.AST) -> str:
    """The last name of what a call calls, or nothing."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")
