"""Gates whose time was over: how they are revived, and the time they have then."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import NotRetryable, Status, dependency, enqueue, retry
from django_ayework.testing import drain, now
from tests.gates.works import BROKEN, labels, step


class TestExpiredGates:
    def test_an_expired_gate_retried_waits_for_its_timeout_anew(self, time_travel):
        gate = enqueue(dependency(["a"], [step(label="after")], timeout=60))
        time_travel(61)
        drain()
        retry(gate.id)
        drain()
        assert gate.state().status is Status.BLOCKED
        assert timedelta(seconds=58) < gate.state().deadline - now() <= timedelta(seconds=60)
        enqueue(step(label="a"), id="a")
        drain()
        assert labels() == ["a", "after"]

    def test_an_expired_gate_whose_members_have_succeeded_since_opens_at_once(self, time_travel):
        gate = enqueue(dependency(["a"], [step(label="after")], timeout=60))
        time_travel(61)
        drain()
        enqueue(step(label="a"), id="a")
        drain()
        retry(gate.id)
        assert gate.state().status is Status.SUCCESS
        drain()
        assert labels() == ["a", "after"]

    def test_an_expired_gate_whose_member_died_names_it(self, time_travel):
        BROKEN.add("a")
        gate = enqueue(dependency(["a"], [step(label="after")], timeout=60))
        time_travel(61)
        drain()
        enqueue(step(label="a"), id="a")
        drain()
        with pytest.raises(NotRetryable) as refused:
            retry(gate.id)
        assert refused.value.members == ("a",)

    def test_retrying_an_expired_gate_revives_the_links_behind_it(self, time_travel):
        gate = dependency(["a"], [step(label="b")], timeout=60)
        behind = enqueue(dependency([gate.releases[0]], [step(label="c")]))
        enqueue(gate)
        time_travel(61)
        drain()
        assert behind.state().reason == "unsatisfiable"
        retry(gate.id)
        assert behind.state().status is Status.BLOCKED
        enqueue(step(label="a"), id="a")
        drain()
        assert labels() == ["a", "b", "c"]

    def test_retrying_a_member_does_not_revive_a_gate_that_expired(self, time_travel):
        BROKEN.add("a")
        gate = enqueue(dependency(["a", "b"], [step(label="after")], timeout=60, on_unmet="wait"))
        enqueue(step(label="a"), id="a")
        drain()
        time_travel(61)
        drain()
        assert gate.state().reason == "expired"
        BROKEN.clear()
        retry("a")
        drain()
        assert gate.state().reason == "expired"

    def test_a_revived_gate_has_its_whole_timeout_again(self, time_travel):
        """Its step was fixed after lunch; the gate's minute starts again."""
        BROKEN.add("a")
        gate = enqueue(dependency(["a", "b"], [step(label="after")], timeout=60))
        enqueue(step(label="a"), id="a")
        drain()
        time_travel(3600)
        BROKEN.clear()
        retry("a")
        drain()
        assert gate.state().status is Status.BLOCKED
        enqueue(step(label="b"), id="b")
        drain()
        assert labels() == ["a", "b", "after"]

    def test_a_gate_that_expires_counts_anew_and_a_deadline_stays(self, time_travel):
        moment = now() + timedelta(seconds=60)
        relative = enqueue(dependency(["a"], [step(label="relative")]), expires=60)
        absolute = enqueue(dependency(["a"], [step(label="absolute")]), deadline=moment)
        time_travel(61)
        drain()
        retry(relative.id)
        retry(absolute.id)
        drain()
        assert relative.state().status is Status.BLOCKED
        assert absolute.state().reason == "expired"
