from decimal import Context, Decimal, InvalidOperation, localcontext
from enum import Enum, IntEnum, IntFlag
from uuid import UUID

import pytest

from django_ayework.errors import NotDecodable
from django_ayework.rules.codec import decode, encode
from tests.rules.codec.values import fingerprint


class Size(IntEnum):
    SMALL = 1
    HUGE = 2**60


class Access(IntFlag):
    READ = 1
    WRITE = 2


class Ratio(float, Enum):
    HALF = 0.5


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2**53 - 1, "9007199254740991"),
        (-(2**53) + 1, "-9007199254740991"),
        (2**53, '{"$ayework":"int","value":"0x20000000000000"}'),
        (-(2**53), '{"$ayework":"int","value":"-0x20000000000000"}'),
    ],
)
def test_whole_numbers_are_tagged_where_other_readers_would_round(number, text):
    assert encode(number) == text
    assert encode((number,)) == f'{{"$ayework":"tuple","value":[{text}]}}'
    assert decode(text) == number


def test_a_number_of_ten_thousand_digits_comes_back():
    number = 10**10_000 + 1
    assert decode(encode({"n": number})) == {"n": number}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_floats_that_json_lacks_are_tagged(text):
    assert encode(float(text)) == f'{{"$ayework":"float","value":"{text}"}}'
    assert repr(decode(encode(float(text)))) == text


@pytest.mark.parametrize(
    ("number", "plain"),
    [(Size.SMALL, 1), (Size.HUGE, 2**60), (Access.READ | Access.WRITE, 3), (Ratio.HALF, 0.5)],
)
def test_numeric_enum_members_become_plain_numbers(number, plain):
    assert fingerprint(decode(encode(number))) == fingerprint(plain)


@pytest.mark.parametrize("text", ["1.50", "-0", "1E+400", "NaN", "-sNaN7", "Infinity", "-Infinity", "0E-9"])
def test_decimals_keep_every_digit(text):
    assert encode(Decimal(text)) == f'{{"$ayework":"decimal","value":"{text}"}}'
    assert decode(encode(Decimal(text))).as_tuple() == Decimal(text).as_tuple()


def test_decimals_do_not_depend_on_the_context_of_the_thread():
    text = encode(Decimal("1.23456789"))
    with localcontext(Context(prec=3, traps=[])):
        assert decode(text).as_tuple() == Decimal("1.23456789").as_tuple()
        with pytest.raises(NotDecodable) as caught:
            decode('{"$ayework":"decimal","value":"a lot"}')
    assert isinstance(caught.value.__cause__, InvalidOperation)


def test_uuids_are_readable():
    uuid = UUID("12345678-1234-5678-1234-567812345678")
    assert encode(uuid) == f'{{"$ayework":"uuid","value":"{uuid}"}}'
    assert decode(encode(uuid)) == uuid
