"""Is it JSON? Asked of each value that is to be JSON; the value itself stays as it was written.

By the standard (RFC 8259): UTF-8, no NaN, nothing behind the value; and no lone surrogates as escapes and at most 1,024
levels, which most readers do not take. orjson is quick, but builds the value, at up to 24 times the size of the
text, and refuses numbers beyond its range (``1e400``): a scanner checks large values, and those that orjson refuses.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

#: Bytes from which on a value is walked through.
LARGE: Final = 1 << 20
_LEVELS: Final = 1024

_SPACE = rb"[ \t\n\r]*"
# Of surrogates, only pairs: a high one and a low one.
_UNICODE = (
    rb"u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    rb"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_STRING = rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|' + _UNICODE + rb'))*+"'
_SCALAR = rb"(?:" + _STRING + rb"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
_BEGIN = re.compile(_SPACE + rb"(?:(?P<open>[\[{])|(?P<close>[\]}])|" + _SCALAR + rb")" + _SPACE)
_KEY = re.compile(_SPACE + _STRING + _SPACE + rb":")
_END_OF_OBJECT = re.compile(_SPACE + rb"\}" + _SPACE)
_NEXT = re.compile(rb"(?:(,)|([\]}]))" + _SPACE)


def is_json(value: bytes) -> bool:
    """Whether ``value`` is one JSON value."""
    if len(value) < LARGE:
        try:
            orjson.loads(value)
        except orjson.JSONDecodeError:
            pass
        else:
            return True
    return is_walked_json(value)


def is_walked_json(value: bytes) -> bool:
    """The same, in no more memory than the levels need; some twenty times slower."""
    return is_text(value) and _walk(value)


def is_text(value: bytes) -> bool:
    """Whether ``value`` is UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _walk(text: bytes) -> bool:
    levels = bytearray()  # the bracket that each open level began with
    place = 0
    fresh = False  # just behind an opening bracket
    while True:
        if levels and levels[-1] == 0x7B:
            closing = _END_OF_OBJECT.match(text, place) if fresh else None
            if closing is None:
                key = _KEY.match(text, place)
                if key is None:
                    return False
                place = key.end()
                fresh = False
        found = _BEGIN.match(text, place)
        if found is None:
            return False
        place = found.end()
        if found["open"]:
            levels += found["open"]
            if len(levels) > _LEVELS:
                return False
            fresh = True
            continue
        # Only an empty list ends where a value may stand.
        if found["close"] and (not fresh or not levels or levels.pop() != found["close"][0] - 2):
            return False
        fresh = False
        while levels:
            following = _NEXT.match(text, place)
            if following is None:
                return False
            place = following.end()
            if following[1]:
                break
            if levels.pop() != following[2][0] - 2:
                return False
        else:
            return place == len(text)
