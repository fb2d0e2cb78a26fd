"""Works of an unknown type: offered again and again, then dead, and always visible as such."""

from typing import Any

import pytest

from django_ayework import Context, Retry, WorkState, enqueue, explain, get_handle, registry, retry, work
from django_ayework.models import Attempt
from django_ayework.testing import drain, now, running_worker, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.admin.kit import address
from tests.processes import eventually

pytestmark = pytest.mark.django_db
TYPE = "attempts.unknown"
GRACE = 3600


def stated(id: str) -> WorkState:
    state = get_handle(id).state()
    assert state is not None
    return state


@pytest.fixture
def parked() -> str:
    """The id of a work that was offered once, to somebody who does not know it."""
    id = str(WorkFactory(type=TYPE, input="{}").id)
    assert drain().ran == 0
    return id


def appear(handler: Any = lambda: "known at last", **options: Any) -> Any:
    """Deploy the code that knows the type."""
    return work(name=TYPE, **options)(handler)


def test_it_is_offered_every_five_seconds_until_its_type_is_known(parked):
    assert 4 < (stated(parked).start_at - now()).total_seconds() <= 5
    for step in [GRACE / 10] * 9 + [GRACE / 10 - 10]:
        time_travel(step)
        assert drain().ran == 0
    assert (stated(parked).status, stated(parked).attempt) == ("scheduled", 0)
    appear(lambda ctx: [ctx.last_error])
    time_travel(4)
    assert drain().ran == 0
    time_travel(1.1)
    assert drain().succeeded == 1
    state = stated(parked)
    assert (state.result, state.attempt, state.last_error) == ([None], 1, None)


def test_it_dies_after_the_grace_and_a_retry_gives_it_the_whole_grace_again(parked):
    time_travel(GRACE - 10)
    assert drain().ran == 0
    time_travel(11)
    assert drain().dead == 1
    state = stated(parked)
    assert (state.status, state.reason, state.attempt) == ("dead", "unknown_type", 0)
    assert f"no worker knew {TYPE!r}" in (state.error or "")
    assert not Attempt.objects.exists()
    retry(parked)
    assert drain().ran == 0
    time_travel(GRACE - 10)
    assert drain().ran == 0
    assert stated(parked).status == "scheduled"


def fails_once(ctx: Context) -> str:
    if ctx.attempt == 1:
        raise ValueError("no luck")
    return f"met {ctx.last_error}"


def test_a_worker_that_knew_it_meanwhile_starts_the_grace_anew_and_the_handler_sees_its_last_error():
    handle = enqueue(appear(fails_once, retry=Retry(attempts=3, base=0, jitter=0))())
    registry.unregister(TYPE)
    drain()
    time_travel(GRACE - 10)
    appear(fails_once)
    assert drain(limit=1, raises=False).retried == 1
    registry.unregister(TYPE)
    drain()
    time_travel(GRACE - 10)
    drain()
    assert stated(handle.id).status == "scheduled"
    note, before = (stated(handle.id).last_error or "").split("\n")
    assert note.startswith("no worker here knows this type, since ")
    assert before == "ValueError: no luck"
    appear(fails_once)
    time_travel(5.1)
    drain()
    assert (stated(handle.id).result, stated(handle.id).attempt) == ("met ValueError: no luck", 2)


@pytest.mark.vendors("sqlite")
def test_explanations_and_the_admin_say_so(parked, admin_client):
    def pages() -> list[str]:
        addresses = [address("work_change", parked), address("work_changelist")]
        return [admin_client.get(one).content.decode() for one in addresses]

    assert f"and none knew its type {TYPE!r}." in str(explain(parked))
    own, listed = pages()
    assert "and none knew its type" in own
    assert "no worker here knows this type, since" in listed
    time_travel(GRACE + 1)
    drain()
    assert [reason.code for reason in explain(parked).reasons] == ["unknown_type"]
    own, listed = pages()
    assert "no worker knew its type" in own
    assert "unknown type" in listed


OTHER_NAME = "Did you mean 'attempts.unknown_now'?"
KEEP_NAME = 'If its function was renamed or moved, keep the stored name: @work(name="attempts.unknown").'


@pytest.fixture
def renamed(monkeypatch):
    """Let the process know the type under another name only."""
    declared = appear()
    registry.unregister(TYPE)
    monkeypatch.setattr(registry, "_declared", {"attempts.unknown_now": declared})


@pytest.mark.vendors("sqlite")
def test_a_renamed_type_is_shown_with_its_new_name_and_how_to_keep_the_old_one(parked, renamed):
    assert f"{OTHER_NAME} {KEEP_NAME} Without one, it dies at" in str(explain(parked))
    time_travel(GRACE + 1)
    assert drain().dead == 1
    error = stated(parked).error or ""
    assert error.endswith(f"{OTHER_NAME} {KEEP_NAME} Works are loaded here from {__name__}.")
    assert f"then retry it. {OTHER_NAME} {KEEP_NAME}" in str(explain(parked))


def lines_of(caplog: Any) -> list[str]:
    return [message for message in caplog.messages if "unknown here" in message]


@pytest.mark.vendors("sqlite")
@pytest.mark.django_db(transaction=True)
def test_a_worker_logs_once_that_it_does_not_know_a_type_and_what_it_has_loaded(renamed, caplog):
    id = str(WorkFactory(type=TYPE, input="{}").id)
    with running_worker(concurrency=1):
        eventually(lambda: stated(id).status == "scheduled")
        [line] = lines_of(caplog)
        offered_at = stated(id).start_at
        time_travel(6)
        eventually(lambda: stated(id).status == "scheduled" and stated(id).start_at > offered_at)
    assert stated(id).attempt == 0
    assert "no worker here knows this type" in stated(id).last_error
    assert lines_of(caplog) == [line]
    assert (
        f"Work {id} has the type 'attempts.unknown', which is unknown here. {OTHER_NAME} {KEEP_NAME} "
        f"Works are loaded here from {__name__}."
    ) in line
