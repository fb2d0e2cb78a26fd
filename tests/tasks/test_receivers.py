"""What receivers of the signals of tasks do has no effect on tasks."""

from asyncio import CancelledError

import pytest
from django.db import transaction

from tests.app.models import Order
from tests.marks import each_database
from tests.tasks import kit
from tests.tasks.kit import finished

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


@pytest.mark.parametrize("error", [RuntimeError, CancelledError])
@pytest.mark.parametrize("name", ["task_enqueued", "task_started", "task_finished"])
def test_a_receiver_that_raises_changes_nothing(name, error):
    def receiver(**keywords):
        raise error

    signal = getattr(kit.signals, name)
    signal.connect(receiver)
    try:
        result = finished(kit.add.enqueue(1))
    finally:
        signal.disconnect(receiver)
    assert (result.status, result.attempts) == ("SUCCESSFUL", 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_signal_that_ends_the_process_in_a_receiver_is_obeyed(error):
    """Handlers of signals raise in the main thread, wherever it is."""

    def receiver(**keywords):
        raise error

    kit.signals.task_enqueued.connect(receiver)
    try:
        with pytest.raises(error):
            kit.add.enqueue(1)
    finally:
        kit.signals.task_enqueued.disconnect(receiver)


@each_database
def test_an_error_of_the_database_in_a_receiver_takes_neither_the_task_nor_rows_of_the_caller():
    def receiver(**keywords):
        Order.objects.create(pk=order.pk)

    order = Order.objects.create(reference="first")
    kit.signals.task_enqueued.connect(receiver)
    try:
        with transaction.atomic():
            result = kit.add.enqueue(1)
            Order.objects.create(reference="mine")
    finally:
        kit.signals.task_enqueued.disconnect(receiver)
    assert Order.objects.filter(reference="mine").exists()
    assert finished(result).status == "SUCCESSFUL"
