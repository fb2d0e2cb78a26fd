"""What ``from django_ayework import …`` offers. A change here is a change for users."""

import django_ayework

NAMES = """
Abort Aborted AlreadyCompleted AttemptTimeout AyeworkError BatchItem BlockerReference ChainNotFound
ChainState Context Count CronError Dedup Defer Explanation Handle Instruction InvalidWorkId NeverEnqueued
NotEncodable NotRetryable NotTriggerable PayloadTooLarge Queue Reschedule Result Retry Status UnknownWorkType
Void WaitInTransaction WaitTimeout WorkCancelled WorkFailed WorkNotFound WorkRequest WorkState
WorkType Worker acancel acomplete adelete_chains aenqueue aenqueue_many aexplain alimit apause
aresume aretry atrigger batch_work cancel complete completing condition_met delete_chains dependency
enqueue enqueue_many enqueue_on explain get_handle limit next_after parse_cron pause registry resume
retry schedule trigger work
"""


def test_the_public_names():
    assert django_ayework.__all__ == NAMES.split()


DOERS = """
Allowed BacklogInfo Candidate Denied Doer FixedWindow Hints SlidingWindow TellsRoom TokenBucket
age balanced priority rate_limited unlimited weights
"""


def test_the_public_names_of_modules_beside():
    from django_ayework import doers, hooks
    from django_ayework.ports import kv, pubsub

    assert doers.__all__ == DOERS.split()
    assert hooks.__all__ == ["PressureInfo", "adaptive_delay"]
    assert kv.__all__ == ["Store", "get_store"]
    assert pubsub.__all__ == ["PubSub", "get_pubsub"]


def test_they_are_sorted_and_named_once():
    assert sorted(set(django_ayework.__all__)) == django_ayework.__all__


def test_each_of_them_is_there():
    assert [name for name in django_ayework.__all__ if not hasattr(django_ayework, name)] == []


def test_a_name_that_is_not_there_is_missed_in_the_usual_words():
    try:
        django_ayework.enque  # noqa: B018
    except AttributeError as missing:
        assert str(missing) == "module 'django_ayework' has no attribute 'enque'"
    else:
        raise AssertionError("a name that is not there was found")


def test_every_error_is_of_the_package_and_says_something_by_itself():
    from django_ayework import errors

    for name, error in vars(errors).items():
        if (
            isinstance(error, type)
            and not issubclass(error, Warning)
            and error.__module__ == errors.__name__
            and "__init__" not in vars(error)
        ):
            assert issubclass(error, django_ayework.AyeworkError), name
            assert str(error()).strip(), name
            assert error(id="w").id == "w", name
