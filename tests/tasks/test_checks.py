"""The system checks of the backend for tasks."""

import pytest
from django.core.checks import run_checks

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"RETRIES": 1}, ["ayework.E013"]),
        ({"RETRY": {"attempt": 1}}, ["ayework.E013"]),
        ({"RETRY": {"attempts": 0}}, ["ayework.E013"]),
        ({"MODULES": ["no.no"]}, ["ayework.E013"]),
        ({"MODULES": "tests.tasks.kit"}, ["ayework.E013"]),
        ({"MODULES": None}, ["ayework.E013"]),
        (None, ["ayework.E013"]),
        ([], ["ayework.E013"]),
        ({"RETRY": {"attempts": 2}, "MODULES": ["tests.tasks.kit"]}, []),
    ],
)
def test_24_the_system_check_finds_options_that_cannot_be_used(settings, options, found):
    settings.TASKS = {"default": {"BACKEND": settings.TASKS["default"]["BACKEND"], "OPTIONS": options}}
    assert [each.id for each in run_checks() if each.id in ("ayework.E012", "ayework.E013")] == found


@pytest.mark.parametrize(
    ("queues", "found"),
    [
        ("mail", ["TASKS['default']['QUEUES'] is no list: 'mail'."]),
        (
            ["mail", "a,b", 5],
            ["TASKS['default']['QUEUES'] has a queue that cannot be used: expected queue"] * 2,
        ),
        (("mail",), []),
        ([], []),
    ],
)
def test_24_the_system_check_finds_queues_that_cannot_be_used(settings, queues, found):
    settings.TASKS = {"default": {"BACKEND": settings.TASKS["default"]["BACKEND"], "QUEUES": queues}}
    errors = [each.msg for each in run_checks() if each.id == "ayework.E013"]
    assert len(errors) == len(found)
    assert all(error.startswith(start) for error, start in zip(errors, found, strict=True))


def test_24_the_system_check_finds_an_option_that_stands_beside_the_options(settings):
    given = settings.TASKS["default"] | {"RETRY": {"attempts": 1}}
    settings.TASKS = {"default": given}
    [error] = [each for each in run_checks() if each.id == "ayework.E013"]
    assert (error.hint or "").startswith("Move 'RETRY' into OPTIONS.")
