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
