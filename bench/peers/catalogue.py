"""Everyone who is measured."""

from __future__ import annotations

from bench.peers.contestant import ONE_WAY, Contestant, Setting

LOOPS = (Setting("1 at a time", "1"), Setting("100 at a time", "100"))
ATOMIC_LOOP = (Setting("one transaction each", "atomic"),)


def ours(database: str) -> Contestant:
    """Return ours, in its default settings, and with each worker process on one CPU."""
    phases = ("enqueue-one", "enqueue-many", "atomic", "latency", "idle")
    drains = {"drain": (Setting(), Setting("one CPU", "--one-cpu"))}
    return Contestant("ours", database, "ours", dict.fromkeys(phases, ONE_WAY) | drains)


OURS = [ours(database) for database in ("postgres", "sqlite", "mariadb")]
RAW = [
    Contestant(
        "raw loop",
        "postgres",
        "raw_postgres",
        {
            "enqueue-one": (Setting("INSERT"),),
            "enqueue-many": (Setting("COPY", "copy"), Setting("executemany", "executemany")),
            "drain": LOOPS,
            "atomic": ATOMIC_LOOP,
            "latency": (Setting("LISTEN", "1"),),
        },
    ),
    Contestant(
        "raw loop",
        "sqlite",
        "raw_sqlite",
        {
            "enqueue-one": (Setting("INSERT"),),
            "enqueue-many": (Setting("executemany"),),
            "drain": LOOPS,
            "atomic": ATOMIC_LOOP,
            "latency": (Setting("looks each 10 ms", "1"),),
        },
    ),
    Contestant(
        "raw loop",
        "mariadb",
        "raw_mariadb",
        {
            "enqueue-one": (Setting("INSERT"),),
            "enqueue-many": (Setting("executemany"),),
            "drain": LOOPS,
            "atomic": ATOMIC_LOOP,
            "latency": (Setting("looks each 10 ms", "1"),),
        },
    ),
]


def peer(
    name: str,
    database: str,
    driver: str,
    *drains: Setting,
    needs: tuple[str, ...],
    **others: tuple[Setting, ...],
) -> Contestant:
    """Return a peer that is in every phase but the atomic one: the first way to drain is its default."""
    settings = dict.fromkeys(("enqueue-one", "enqueue-many"), ONE_WAY) | dict.fromkeys(
        ("latency", "idle"), drains[:1]
    )
    return Contestant(name, database, driver, settings | {"drain": drains} | others, needs=needs)


PEERS = [
    peer(
        "pgqueuer",
        "postgres",
        "pgqueuer_queue",
        Setting("batches of 10, the default", "10"),
        Setting("batches of 100", "100"),
        needs=("pgqueuer", "asyncpg", "uvloop"),
    ),
    peer(
        "procrastinate",
        "postgres",
        "procrastinate_queue",
        Setting("1 at a time, the default", "1"),
        Setting("10 at a time", "10"),
        needs=("procrastinate",),
    ),
    *(
        peer(
            "django-ox",
            database,
            "django_ox_app",
            Setting("1 at a time, the default", "1"),
            Setting("8 at a time", "8"),
            needs=("django.tasks", "django_ox"),
        )
        for database in ("postgres", "sqlite")
    ),
    peer(
        "django-tasks-db",
        "postgres",
        "django_tasks_db_app",
        Setting("reconnecting, the default", "fresh 1"),
        Setting("connection kept", "1"),
        needs=("django.tasks", "django_tasks_db"),
    ),
    peer(
        "django-tasks-db",
        "sqlite",
        "django_tasks_db_app",
        Setting("connection kept", "1"),
        needs=("django.tasks", "django_tasks_db"),
        latency=(Setting("looks each 1 s, the default", "1"), Setting("looks each 0.1 s", "0.1")),
    ),
    peer(
        "django-q2",
        "postgres",
        "django_q2_app",
        Setting("1 at a time, the default"),
        Setting("50 at a time", "50"),
        needs=("django_q",),
    ),
    peer(
        "celery",
        "redis",
        "celery_redis",
        Setting("no results, the default"),
        Setting("results kept", "yes"),
        needs=("celery", "redis"),
    ),
    peer(
        "dramatiq",
        "redis",
        "dramatiq_redis",
        Setting("8 threads, the default", "8"),
        needs=("dramatiq", "redis"),
    ),
    peer(
        "huey",
        "redis",
        "huey_queue",
        Setting("1 thread, the default", "1 thread"),
        Setting("2 processes", "2 process"),
        needs=("huey", "redis"),
    ),
    peer(
        "huey",
        "sqlite",
        "huey_queue",
        Setting("1 thread, the default", "1 thread"),
        needs=("huey",),
        latency=(Setting("looks by default", "1 thread"), Setting("looks each 10 ms", "1 thread 0.01")),
    ),
]
SHELLS = [
    Contestant("bare Django shell", database, "bare_django", {"idle": ONE_WAY})
    for database in ("postgres", "sqlite", "mariadb")
]
