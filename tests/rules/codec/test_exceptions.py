import copy
import pickle

import pytest

from django_ayework.errors import NotDecodable
from django_ayework.rules.codec import StoredException, decode, encode


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_an_exception_is_kept_as_name_and_message():
    text = encode(ValueError("no such colour"))
    assert text == '{"$ayework":"exception","value":{"name":"ValueError","message":"no such colour"}}'
    error = decode(text)
    assert type(error) is StoredException
    assert (error.name, error.message) == ("ValueError", "no such colour")
    assert str(error) == "ValueError: no such colour"


def test_an_exception_that_was_stored_before_keeps_its_first_name():
    assert decode(encode(decode(encode(KeyError("a"))))) == StoredException("KeyError", "'a'")


def test_an_exception_without_a_message_prints_its_name():
    assert str(decode(encode(KeyboardInterrupt()))) == "KeyboardInterrupt"


def test_an_exception_that_cannot_speak_is_stored_all_the_same():
    assert decode(encode(Speechless())) == StoredException("Speechless", "<its message cannot be read>")


def test_a_message_may_hold_any_character():
    assert decode(encode(ValueError("\x00\ud800\udc00"))).message == "\x00\ud800\udc00"


def test_a_stored_exception_can_be_raised_copied_and_compared():
    error = StoredException("ValueError", "no")
    with pytest.raises(StoredException, match=r"^ValueError: no$"):
        raise error
    assert copy.copy(error) == pickle.loads(pickle.dumps(error)) == error
    assert hash(error) == hash(StoredException("ValueError", "no"))
    assert error != StoredException("ValueError", "yes")
    assert error != "ValueError: no"


def test_exceptions_may_be_members_of_sets_and_keys():
    assert decode(encode({ValueError("a"): 1})) == {StoredException("ValueError", "a"): 1}
    assert decode(encode({ValueError("a")})) == {StoredException("ValueError", "a")}


def test_no_class_is_ever_made_from_a_name():
    assert decode(encode(decode('{"$ayework":"exception","value":{"name":"os.system","message":"ls"}}'))) == (
        StoredException("os.system", "ls")
    )


@pytest.mark.parametrize(
    "value",
    ['"ValueError"', "{}", '{"name":"a"}', '{"name":"a","message":1}', '{"name":"a","message":"b","x":"c"}'],
)
def test_malformed_exceptions_cannot_be_read(value):
    with pytest.raises(NotDecodable, match="expected a stored exception, got: "):
        decode(f'{{"$ayework":"exception","value":{value}}}')
