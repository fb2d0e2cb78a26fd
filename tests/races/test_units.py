"""Units: whoever brings one at the same moment, it has one live work, and no input is lost."""

from __future__ import annotations

from django_ayework import enqueue, enqueue_many
from django_ayework.flow.new_works import Lineage, NewWork, build_new_work
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Work
from django_ayework.store.clock import clock
from tests.invariants import assert_consistent
from tests.outputs.works import fetch, given
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, race, succeed


def output(*units: str) -> tuple[NewWork, ...]:
    """Return what a settled work outputs: these units, whatever their order."""
    return tuple(build_new_work(fetch(size=1), {"unit": unit}, Lineage(), clock.now()) for unit in units)


def live_per_unit() -> dict[str, int]:
    counts: dict[str, int] = {}
    for unit in Work.objects.filter(type="out.fetch", ended_at=None).values_list("unit", flat=True):
        counts[unit] = counts.get(unit, 0) + 1
    return counts


def test_two_settlements_that_output_the_same_units_make_one_work_of_each():
    enqueue_many([given() for _ in range(2 * ROUNDS)])
    parents = list(claim_all().values())

    def act(side: int):
        def settle_one(n: int) -> None:
            units = [f"{n}/a", f"{n}/b", f"{n}/c"]
            new_works = output(*(units if side else reversed(units)))
            settle([Settlement(parents[2 * n + side], Success(outputs=new_works))])

        return settle_one

    race(ROUNDS, act(0), act(1))
    assert len(live_per_unit()) == 3 * ROUNDS
    assert set(live_per_unit().values()) == {1}
    assert_consistent()


def test_an_enqueue_and_a_settlement_of_one_unit_make_one_work():
    enqueue_many([given() for _ in range(ROUNDS)])
    parents = list(claim_all().values())
    race(
        ROUNDS,
        lambda n: settle([Settlement(parents[n], Success(outputs=output(str(n))))]),
        lambda n: enqueue(fetch(size=2), unit=str(n)),
    )
    assert len(live_per_unit()) == ROUNDS
    assert set(live_per_unit().values()) == {1}
    assert_consistent()


def test_a_unit_that_is_claimed_while_it_is_replaced_runs_with_one_of_both_inputs_and_loses_neither():
    handles = enqueue_many([fetch(size=1) for _ in range(ROUNDS)])
    for n, handle in enumerate(handles):
        Work.objects.filter(id=handle.id).update(unit=str(n))
    claimed = {}

    race(
        ROUNDS,
        lambda n: claimed.update(claim_all()) if n % 4 == 0 else None,
        lambda n: enqueue(fetch(size=2), unit=str(n)),
    )
    claimed.update(claim_all())
    assert len(claimed) == ROUNDS
    for row in claimed.values():
        assert Work.objects.get(id=row.id).input == row.input, "a running work kept what it began with"
    assert succeed(*claimed.values()).moved == set(claimed)
    assert_consistent()


def test_a_unit_that_ends_while_it_comes_again_runs_anew():
    handles = [enqueue(fetch(size=1), unit=str(n)) for n in range(ROUNDS)]
    rows = claim_all()
    again = {}

    def come_again(n: int) -> None:
        again[n] = enqueue(fetch(size=2), unit=str(n))

    race(ROUNDS, lambda n: succeed(rows[handles[n].id]), come_again)
    for n, handle in enumerate(handles):
        assert again[n].deduplicated is (again[n].id == handle.id)
    assert set(live_per_unit().values()) <= {1}
    assert len(live_per_unit()) == sum(not handle.deduplicated for handle in again.values())
    assert_consistent()
