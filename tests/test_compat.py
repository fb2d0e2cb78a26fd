"""The private parts of Python that the package uses behave as it expects."""

import sys

from django_ayework.compat import discard_after_call, is_discarding

SEEN: list[bool] = []


class Probe:
    """Records where its construction finds a discard, and whether that is what frees it."""

    def __init__(self):
        self.discard = discard_after_call(sys._getframe(1))
        SEEN.append(self.discard is not None)

    def __del__(self):
        if self.discard is not None:
            SEEN.append(is_discarding(self.discard))


def probed(source):
    SEEN.clear()
    exec(source, {"Probe": Probe, "kept": []})
    return list(SEEN)


def test_a_value_that_an_expression_statement_discards():
    assert probed("Probe()") == [True, True]
    assert probed("def made():\n return Probe()\nmade()") == [True, True]


def test_a_value_that_is_used_or_kept():
    assert probed("value = Probe()") == [False]
    assert probed("kept.append(Probe())") == [False]
    assert probed("kept.extend(made() for made in [Probe])") == [False]
    assert probed("kept.extend(map(lambda: Probe(), []))") == []


def test_a_value_that_the_called_function_keeps_is_freed_elsewhere():
    assert probed("def made(_):\n return Probe()\nkept.extend(map(made, [1]))\nkept.clear()") == [True, False]
