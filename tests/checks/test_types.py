"""System checks of the declared types."""

from django.core.checks import run_checks

from django_ayework import registry, work


def test_e005_two_works_of_one_name(monkeypatch):
    monkeypatch.setattr(registry, "_types", {})
    monkeypatch.setattr(registry, "clashes", {})

    @work(name="tests.twice")
    def first(): ...

    @work(name="tests.twice")
    def second(): ...

    @work(name="tests.once")
    def third(): ...

    [message] = run_checks(tags=["ayework"])
    where = f"{__name__}.test_e005_two_works_of_one_name.<locals>"

    assert message.id == "ayework.E005"
    assert message.msg == f"Two works are named 'tests.twice': {where}.first and {where}.second."
    assert message.hint == 'Give one of them another name: @work(name="...").'


def nothing() -> None: ...


def test_e008_a_dotted_path_that_leads_nowhere(monkeypatch):
    monkeypatch.setattr(registry, "_types", {})
    here = f"{__name__}.nothing"
    work(name="tests.fine", on_failure=here, log_context=here, middleware=[here, nothing])(nothing)
    work(name="tests.lost", on_event="no.where", middleware=[here, f"{__name__}.nothnig"])(nothing)

    event, middleware = run_checks(tags=["ayework"])

    assert {event.id, middleware.id} == {"ayework.E008"}
    assert event.msg == "on_event= of the work 'tests.lost' leads nowhere: No module named 'no'."
    assert middleware.msg.startswith("middleware= of the work 'tests.lost' leads nowhere: Module ")
    assert 'does not define a "nothnig" attribute/class.' in middleware.msg


def test_w003_a_type_that_chains_to_one_that_is_not_there(monkeypatch):
    monkeypatch.setattr(registry, "_types", {})
    monkeypatch.setattr(registry, "_targets", set())

    @work(name="tests.store")
    def store(): ...

    @work(name="tests.fetch", then="tests.stor")
    def fetch(): ...

    @work(name="tests.crawl", then="tests.fetch")
    def crawl(): ...

    [message] = run_checks(tags=["ayework"])

    assert message.id == "ayework.W003"
    assert message.msg == (
        "'tests.fetch' has then='tests.stor', but no work is named so; what it outputs is dropped."
    )
    assert message.hint == "Did you mean 'tests.store'?"
