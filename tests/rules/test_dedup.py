"""What a Dedup accepts."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from django_ayework import Dedup
from django_ayework.errors import AyeworkError, InvalidOption, InvalidWorkId


def test_a_key_alone_looks_at_works_that_have_not_ended():
    dedup = Dedup("nightly")
    assert (dedup.scope, dedup.window, dedup.exclude) == ("incomplete", None, ())


@pytest.mark.parametrize("key", ["", "k" * 191, "a\nb", "nul\x00", " k", "k ", 5, None, b"k"])
def test_a_key_that_does_not_fit_its_column_everywhere_is_refused(key):
    with pytest.raises(InvalidOption, match=r"expected Dedup's key to be .* got: ") as refusal:
        Dedup(key)
    assert isinstance(refusal.value, AyeworkError)


@pytest.mark.parametrize("key", ["k", "k" * 190, "order 7", "Straße 🚀"])
def test_any_printable_text_is_a_key(key):
    assert Dedup(key).key == key


@pytest.mark.parametrize(("scope", "hint"), [("incomplet", "Did you mean 'incomplete'"), ("Any", "'any'")])
def test_an_unknown_scope_is_refused_with_the_nearest_one(scope, hint):
    with pytest.raises(InvalidOption, match=rf"expected Dedup's scope to be .* got: '{scope}'.*{hint}"):
        Dedup("k", scope=scope)


@pytest.mark.parametrize(("window", "kept"), [(5, 5.0), (0.05, 0.05), (timedelta(minutes=1), 60.0)])
def test_a_window_is_seconds_or_a_timedelta(window, kept):
    assert Dedup("k", window=window).window == kept


@pytest.mark.parametrize("window", [0, timedelta(), -1, float("inf"), float("nan")])
def test_a_window_that_nothing_could_be_within_is_refused(window):
    with pytest.raises(ValueError, match="expected Dedup's window to be"):
        Dedup("k", window=window)


def test_a_window_of_another_type_is_refused():
    with pytest.raises(TypeError, match="expected Dedup's window to be seconds"):
        Dedup("k", window="soon")


@pytest.mark.parametrize(
    ("exclude", "ids"),
    [
        ("one", ("one",)),
        (["one", "two", "one"], ("one", "two")),
        (SimpleNamespace(id="one"), ("one",)),
        ((SimpleNamespace(id="one"), "two"), ("one", "two")),
        ((id for id in ("one",)), ("one",)),
    ],
)
def test_ids_and_handles_can_be_excluded(exclude, ids):
    assert Dedup("k", exclude=exclude).exclude == ids


def test_what_is_no_id_cannot_be_excluded():
    with pytest.raises(InvalidWorkId):
        Dedup("k", exclude=[7])


def test_equal_ones_are_equal_and_can_be_kept_in_a_set():
    assert len({Dedup("k", exclude=["a"]), Dedup("k", exclude=("a",)), Dedup("k", exclude="b")}) == 2
