"""Rich values as plain JSON text, and back.

What JSON can say is written as ordinary JSON, so that people and other languages can read it; everything
else is wrapped as ``{"$ayework": "<tag>", "value": …}``. Nothing is pickled and no class is imported by name.

>>> from decimal import Decimal
>>> encode({"sku": "tea", "price": Decimal("4.50")})
'{"sku":"tea","price":{"$ayework":"decimal","value":"4.50"}}'
>>> decode('{"sku":"tea","price":{"$ayework":"decimal","value":"4.50"}}')
{'sku': 'tea', 'price': Decimal('4.50')}

| value | comes back as |
|---|---|
| None, bool, str, int of any size, float (NaN, infinities and -0.0 too) | the same |
| list, tuple, set, frozenset, dict with any keys | the same |
| datetime, date, time (offset, ``ZoneInfo`` and fold kept), timedelta | the same |
| Decimal, UUID, bytes | the same |
| bytearray, memoryview | bytes |
| other mappings; named tuples; subclasses of the types above | dict; tuple; the plain type |
| members of a StrEnum, IntEnum, TextChoices or IntegerChoices | their plain text or number |
| translated (lazy) and safe strings | str |
| exceptions | ``StoredException`` with the class's name and the message |

Anything else raises ``NotEncodable``; a ``CustomType`` teaches a ``RichJSON`` about a class of your own.
"""

from django_ayework.rules.codec.richjson import RichJSON, decode, encode
from django_ayework.rules.codec.text import Codec, CustomType, StoredException

__all__ = ["Codec", "CustomType", "RichJSON", "StoredException", "decode", "encode"]
