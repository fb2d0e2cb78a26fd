"""Who writes ``status``, and who speaks SQL."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import called, parsed

WRITING = {"update", "aupdate", "create", "acreate", "get_or_create", "update_or_create", "bulk_update"}
IN_BULK = {"update_rows", "update_joined", "count_moved", "write"}  # of store.bulk: any column
SETS_STATUS = re.compile(r"\bSET\b(?:(?!\bWHERE\b).)*\bstatus\b\s*=", re.DOTALL | re.IGNORECASE)
SQL = {"cursor", "execute", "executemany", "callproc", "RawSQL", "raw", "extra"}

#: The one place outside the store: a PRAGMA tells a system check how SQLite is set up.
SPEAKS_OF_SQLITE = "checks.py"


def writes_status(tree: ast.AST) -> Iterator[int]:
    """The lines that write a work's status."""
    for node in ast.walk(tree):
        if (
            calls_with_status(node)
            or assigns_status(node)
            or (isinstance(node, ast.Constant) and SETS_STATUS.search(str(node.value)))
        ):
            yield node.lineno


def calls_with_status(node: ast.AST) -> bool:
    name = called(node)
    if name in IN_BULK:
        return [getattr(argument, "id", "") for argument in node.args[:1]] == ["Work"]
    if name in {"Work", "DeadLetter"}:
        return any(keyword.arg == "status" for keyword in node.keywords)
    if name in WRITING:
        return any(keyword.arg == "status" or says_status(keyword.value) for keyword in node.keywords) or any(
            map(says_status, node.args)
        )
    return name == "setattr" and says_status(node.args[1])


def says_status(node: ast.AST) -> bool:
    """Whether a value names the column: as text, in a list, or as the key of a mapping."""
    names = [node]
    if isinstance(node, (ast.List, ast.Tuple)):
        names = node.elts
    if isinstance(node, ast.Dict):
        names = node.keys
    return any(isinstance(name, ast.Constant) and name.value == "status" for name in names)


def assigns_status(node: ast.AST) -> bool:
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    is_assignment = isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
    return is_assignment and any(isinstance(to, ast.Attribute) and to.attr == "status" for to in targets)


def speaks_sql(tree: ast.AST) -> Iterator[int]:
    """The lines that send SQL of their own."""
    for node in ast.walk(tree):
        if called(node) in SQL and not calls_parent(node):
            yield node.lineno


def calls_parent(node: ast.AST) -> bool:
    """Whether this calls a method of a parent class: Django's commands have one that is called execute."""
    called_on = (
        node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    )
    return isinstance(called_on, ast.Call) and called(called_on) == "super"


WRITES = [
    "rows(Work).filter(id=id).update(status='dead')",
    "Work.objects.create(id=id, status='dead')",
    "Work.objects.update_or_create(id=id, defaults={'status': 'dead'})",
    "Work.objects.bulk_update(works, ['status'])",
    "Work(id=id, status='dead').save()",
    "work.status = Status.DEAD",
    "setattr(work, 'status', 'dead')",
    "update_joined(Work, update)",
    "sql = 'UPDATE w SET attempt = 1, status = %s WHERE id = 1'",
    "sql = f'UPDATE {table} SET status = {value}'",
]
READS = [
    "rows(Work).filter(status='dead').update(error='')",
    "rows(Work).exclude(status='dead').values_list('status')",
    "row._replace(status='dead')",
    "update_rows(Group, changes)",
    "sql = 'UPDATE w SET attempt = 1 WHERE status = %s'",
    "status = work.status",
    "known.update(ids)",
]


@pytest.mark.parametrize("source", WRITES)
def test_a_write_of_status_is_recognised(source):
    assert list(writes_status(ast.parse(source)))


@pytest.mark.parametrize("source", READS)
def test_a_read_of_status_is_not_taken_for_a_write(source):
    assert not list(writes_status(ast.parse(source)))


def test_only_transitions_and_inserts_write_status():
    found = {path: lines for path, tree in parsed() if (lines := list(writes_status(tree)))}

    assert set(found) == {"store/transitions.py", "store/claims.py"}


def test_sql_is_spoken_in_the_store_only():
    found = {path: lines for path, tree in parsed() if (lines := list(speaks_sql(tree)))}
    strangers = {path: lines for path, lines in found.items() if not path.startswith("store/")}

    assert set(strangers) == {SPEAKS_OF_SQLITE}
    assert len(found) > 1


@pytest.mark.parametrize(
    "source",
    [
        "connection.cursor()",
        "cursor.execute(sql)",
        "Work.objects.raw(sql)",
        "works.extra(where=[sql])",
        "works.annotate(x=RawSQL(sql, []))",
        "works.annotate(x=expressions.RawSQL(sql, []))",
    ],
)
def test_sql_is_recognised(source):
    assert list(speaks_sql(ast.parse(source)))
