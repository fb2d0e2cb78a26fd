"""An attempt that queues very many works, one of which cannot be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from django_ayework import Context, NotEncodable, Retry, enqueue, work
from django_ayework.models import Work
from django_ayework.testing import perform, running_worker
from tests.app.works import add
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ended = frozenset({"success", "dead", "cancelled"})


@work(name="attempts.many_children", retry=Retry(attempts=1))
def many_children(ctx: Context, number: int) -> Any:
    return ctx.queue([add(a=object(), b=0), *(add(a=n, b=0) for n in range(number - 1))])


@pytest.mark.parametrize("number", [101, 1010])
def test_an_input_that_cannot_be_stored_fails_the_attempt(
    configure: Callable[..., None], number: int
) -> None:
    asked: Counter[str] = Counter()
    configure(ON_FAILURE=lambda error, info: asked.update([type(error).__name__]))
    handle = enqueue(many_children(number=number))
    with running_worker(concurrency=2, exclude_types=["shop.add"]):
        eventually(lambda: handle.state().status in ended)
    row = Work.objects.get(id=handle.id)
    assert (row.status, row.reason) == ("dead", "exhausted")
    assert not Work.objects.filter(type="shop.add").exists()
    assert "the input of 'shop.add' cannot be stored" in row.error
    assert asked == {"NotEncodable": 1}


def test_perform_finds_an_input_that_cannot_be_stored() -> None:
    assert isinstance(perform(many_children(number=1010)).error, NotEncodable)
