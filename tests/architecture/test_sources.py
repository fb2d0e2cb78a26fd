"""The shape of the source, its imports, its public names, and the writers of ``status`` and of SQL."""

import ast
import importlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

import django_ayework
from tests.architecture.sources import PACKAGE, ROOT, called, files, parsed

LONGEST = 450
FOLDERS = [PACKAGE, *(ROOT / name for name in ("example_project", "tests", "bench"))]
NAMES = """
Abort Aborted AlreadyCompleted AttemptTimeout AyeworkError BatchItem BlockerReference ChainNotFound
ChainState Context Continue Count CronError Dedup Defer EnqueueOptions Explanation Handle Instruction
InvalidWorkId NeverEnqueued NotEncodable NotRetryable NotTriggerable NotWaiting PayloadTooLarge Queue
Reschedule Result Retry Status UnknownWorkType Void WaitInTransaction WaitTimeout WorkCancelled WorkCount
WorkFailed WorkNotFound WorkRequest WorkState WorkType Worker WorkerNotFound acancel achange_priority
achange_queue acommand_worker acomplete adelete_chains aenqueue aenqueue_many aexplain alimit apause aresume
aretry astart_bulk_action atrigger awork_counts batch_work cancel change_priority change_queue
command_worker complete completing condition_met delete_chains dependency enqueue enqueue_many enqueue_on
explain get_handle limit next_after parse_cron pause registry resume retry schedule start_bulk_action
trigger work work_counts
"""
WRITING = {"update", "aupdate", "create", "acreate", "get_or_create", "update_or_create", "bulk_update"}
IN_BULK = {"update_rows", "move", "write"}  # of store.many_rows: any column
SETS_STATUS = re.compile(r"\bSET\b(?:(?!\bWHERE\b).)*\bstatus\b\s*=", re.DOTALL | re.IGNORECASE)
SQL = {"cursor", "execute", "executemany", "callproc", "RawSQL", "raw", "extra"}
#: The one place outside the store: a PRAGMA tells a system check how SQLite is set up.
SPEAKS_OF_SQLITE = "checks.py"
#: Of Redis, which speaks no SQL.
EXECUTES_PIPELINES = "ports/queue.py"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_file_is_longer_than_can_be_read_at_once(folder):
    lengths = {path: len(path.read_text().splitlines()) for path in files(folder)}
    assert len(lengths) > 10
    assert {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > LONGEST} == {}
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize(("source", "printed"), [
    # Importing the package has no side effects. Rules, doers and definitions do without Django.
    # A work that is declared without Django needs a name, or the app.
    (
        """
        import importlib, pkgutil, signal, sys, threading
        before = signal.getsignal(signal.SIGTERM)
        import django_ayework
        print([name for name in sys.modules if name.split(".")[0] in {"django", "asyncio"}])
        print(threading.active_count(), signal.getsignal(signal.SIGTERM) is before)
        print(django_ayework.registry.names())
        import django_ayework.define, django_ayework.doers, django_ayework.hooks, django_ayework.rules
        for layer in (django_ayework.rules, django_ayework.doers, django_ayework.define):
            for found in pkgutil.walk_packages(layer.__path__, layer.__name__ + "."):
                importlib.import_module(found.name)
        print(len([name for name in sys.modules if name.startswith("django_ayework.")]) > 20)
        print([name for name in sys.modules if name.split(".")[0] == "django"])
        from django_ayework import work
        def restock(): ...
        print(work(name="restock")(restock)().type)
        try:
            work(restock)
        except TypeError as refused:
            print(refused)
        """,
        [
            *("[]", "1 True", "[]", "True", "[]", "restock"),
            '__main__.restock is in no installed app, so it has no name; give one: @work(name="..."). '
            "(django_ayework itself is not loaded: is it in INSTALLED_APPS?)",
        ],
    ),
    # INSTALLED_APPS names it, so Django imports it before there are models.
    (
        """
        import os
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        from django_ayework import Context, work
        import django
        django.setup()
        from django_ayework import Worker, enqueue
        print(Worker.__module__, enqueue.__module__)
        """,
        ["django_ayework.worker.worker django_ayework.api"],
    ),
], ids=["without Django", "before the setup"])  # fmt: skip
def test_importing_the_package_in_a_new_interpreter(source, printed):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == printed


DOERS = """
Allowed BacklogInfo Candidate Denied Doer FixedWindow Hints SlidingWindow TellsRoom TokenBucket
age arun balanced priority rate_limited run unlimited weights
"""


@pytest.mark.parametrize(("module", "names"), [
    ("", sorted(set(NAMES.split()))), ("doers", DOERS.split()), ("hooks", ["PressureInfo", "adaptive_delay"]),
    ("ports.kv", ["Store", "get_store"]), ("ports.pubsub", ["PubSub", "get_pubsub"]),
])  # fmt: skip
def test_the_public_names(module, names):
    public = importlib.import_module(f"django_ayework.{module}".rstrip("."))
    assert public.__all__ == names
    assert [name for name in names if not hasattr(public, name)] == []


def test_a_missing_name_has_the_usual_message():
    with pytest.raises(AttributeError, match=r"^module 'django_ayework' has no attribute 'enque'$"):
        django_ayework.enque  # noqa: B018


def test_every_error_is_of_the_package_and_says_something_by_itself():
    from django_ayework import errors

    classes = {name: error for name, error in vars(errors).items() if isinstance(error, type)}
    for name, error in classes.items():
        is_ours = error.__module__ == errors.__name__ and not issubclass(error, Warning)
        if is_ours and "__init__" not in vars(error):
            assert issubclass(error, django_ayework.AyeworkError), name
            assert str(error()).strip(), name
            assert error(id="w").id == "w", name


def writes_status(tree: ast.AST) -> Iterator[int]:
    """The lines that write a work's status."""
    for node in ast.walk(tree):
        is_sql = isinstance(node, ast.Constant) and SETS_STATUS.search(str(node.value))
        if is_sql or calls_with_status(node) or assigns_status(node):
            yield node.lineno


def calls_with_status(node: ast.AST) -> bool:
    name = called(node)
    if name in IN_BULK:
        return [getattr(argument, "id", "") for argument in node.args[:1]] == ["Work"]
    if name in {"Work", "DeadLetter"}:
        return any(keyword.arg == "status" for keyword in node.keywords)
    if name in WRITING:
        given = [keyword.value for keyword in node.keywords] + node.args
        return any(keyword.arg == "status" for keyword in node.keywords) or any(map(says_status, given))
    return name == "setattr" and says_status(node.args[1])


def says_status(node: ast.AST) -> bool:
    """Whether a value names the column: as text, in a list, or as the key of a mapping."""
    names = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    names = node.keys if isinstance(node, ast.Dict) else names
    return any(isinstance(name, ast.Constant) and name.value == "status" for name in names)


def assigns_status(node: ast.AST) -> bool:
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    is_assignment = isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
    return is_assignment and any(isinstance(to, ast.Attribute) and to.attr == "status" for to in targets)


def speaks_sql(tree: ast.AST) -> Iterator[int]:
    """The lines that send SQL of their own; Django's commands have a method that is called execute."""
    for node in ast.walk(tree):
        if called(node) in SQL and called(getattr(node.func, "value", node.func)) != "super":
            yield node.lineno


WRITES = [
    "rows(Work).filter(id=id).update(status='dead')", "Work.objects.create(id=id, status='dead')",
    "Work.objects.update_or_create(id=id, defaults={'status': 'dead'})",
    "Work.objects.bulk_update(works, ['status'])", "Work(id=id, status='dead').save()",
    "work.status = Status.DEAD", "setattr(work, 'status', 'dead')", "move(Work, update)",
    "sql = 'UPDATE w SET attempt = 1, status = %s WHERE id = 1'",
    "sql = f'UPDATE {table} SET status = {value}'",
]  # fmt: skip
READS = [
    "rows(Work).filter(status='dead').update(error='')",
    "rows(Work).exclude(status='dead').values_list('status')", "row._replace(status='dead')",
    "update_rows(Group, changes)", "sql = 'UPDATE w SET attempt = 1 WHERE status = %s'",
    "status = work.status", "known.update(ids)",
]  # fmt: skip
SENDS = [
    "connection.cursor()", "cursor.execute(sql)", "Work.objects.raw(sql)", "works.extra(where=[sql])",
    "works.annotate(x=RawSQL(sql, []))", "works.annotate(x=expressions.RawSQL(sql, []))",
]  # fmt: skip


@pytest.mark.parametrize(("find", "sources", "expected"), [
    (writes_status, WRITES, True), (writes_status, READS, False), (speaks_sql, SENDS, True),
    (speaks_sql, ["super().execute(*args)"], False),
])  # fmt: skip
def test_writes_of_status_and_sql_are_recognised(find, sources, expected):
    for source in sources:
        assert bool(list(find(ast.parse(source)))) is expected, source


def test_only_transitions_and_inserts_write_status():
    trees = parsed(rf"\bstatus\b|\b({'|'.join(IN_BULK)})\(Work\b")
    found = {path: lines for path, tree in trees if (lines := list(writes_status(tree)))}
    assert set(found) == {"store/transitions.py", "store/claims.py"}


def test_sql_is_spoken_in_the_store_only():
    trees = parsed(rf"\b({'|'.join(SQL)})\(")
    found = {path: lines for path, tree in trees if (lines := list(speaks_sql(tree)))}
    strangers = {path: lines for path, lines in found.items() if not path.startswith("store/")}
    assert set(strangers) == {SPEAKS_OF_SQLITE, EXECUTES_PIPELINES}
    assert len(found) > 1
