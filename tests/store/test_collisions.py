"""Claims of MariaDB and MySQL that meet a deadlock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError, connection

from django_ayework.store import claims
from django_ayework.store.database import clock
from django_ayework.testing.factories import WorkFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("mysql")]


@pytest.mark.parametrize("caps", [{"t.a": 9}, {"t.a": 9, "t.b": 9}], ids=["one type", "several types"])
def test_a_claim_that_the_server_ends_because_of_a_deadlock_is_tried_again(caps):
    for type in caps:
        WorkFactory(id=type, type=type, run_at=clock.now() - timedelta(seconds=1))
    ended = []

    def deadlock(execute, sql, params, many, context):
        if sql.startswith("UPDATE") and not ended:
            ended.append(sql)
            raise OperationalError(1213, "Deadlock found when trying to get lock")
        return execute(sql, params, many, context)

    now = clock.now()
    with connection.execute_wrapper(deadlock):
        claimed = claims.claim("default", caps, 9, "w", now, now + timedelta(minutes=1))
    assert [row.id for row in claimed] == list(caps)
    assert ended
