"""The line between a supervisor and a child."""

from __future__ import annotations

import pytest

from django_ayework.rules.health import Phase, signs_of_nobody
from django_ayework.worker.child import PipeReader, heartbeat_pipe, send_signs, signs_from


@pytest.fixture
def ends():
    ours, theirs = heartbeat_pipe()
    with ours, theirs:
        yield PipeReader(ours), theirs


def test_the_latest_signs_count(ends):
    reader, theirs = ends
    assert reader.latest() is None
    for phase in (Phase.STARTING, Phase.WORKING):
        send_signs(theirs, signs_of_nobody(phase, silent=1.5))
    assert reader.latest() == signs_of_nobody(Phase.WORKING, silent=1.5)
    assert (reader.latest(), reader.has_ended) == (None, False)


def test_what_was_cut_short_is_passed_over(ends):
    reader, theirs = ends
    theirs.sendall(b'{"phase": "wor\n{"phase": "dancing", "dead": []}\n[]\n')
    send_signs(theirs, signs_of_nobody(Phase.WORKING))
    assert reader.latest() == signs_of_nobody(Phase.WORKING)


def test_the_last_word_is_heard_after_the_end(ends):
    reader, theirs = ends
    send_signs(theirs, signs_of_nobody(Phase.RETIRED))
    theirs.close()
    assert reader.latest() == signs_of_nobody(Phase.RETIRED)
    assert reader.has_ended


def test_a_supervisor_that_has_gone_is_told_nothing(ends):
    reader, theirs = ends
    reader.close()
    send_signs(theirs, signs_of_nobody(Phase.WORKING))
    assert theirs.recv(1) == b""


def test_nonsense_is_no_sign():
    assert signs_from(b"") is None
    assert signs_from(b"null") is None
