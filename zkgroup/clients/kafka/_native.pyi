"""The C extension: see _native.c. It is absent where no compiler was; native_reader says whether it is there."""

from typing import Literal, TypeAlias

from typing_extensions import Buffer

interface: int
librdkafka: str

#: Topic, partition, offset.
Position: TypeAlias = tuple[str, int, int]
#: Nulls, their bits (None: there are none), data.
Numbers: TypeAlias = tuple[int, Buffer | None, Buffer]
#: Nulls, their bits (None: there are none), int32 ends, data.
Strings: TypeAlias = tuple[int, Buffer | None, Buffer, Buffer]
#: Nulls, their bits, int32 ends, how many headers there are, names, values.
Headers: TypeAlias = tuple[int, Buffer | None, Buffer, int, Strings, Strings]

class NativeError(Exception):
    """librdkafka's code and text."""

    args: tuple[int, str]

class Block(Buffer):
    """Bytes that are read in place."""

    def __len__(self) -> int: ...

class Batch:
    """Messages of librdkafka, freed by ``release()`` or with the last reference. Its calls raise ValueError then."""

    runs: list[tuple[str, int, int, int, int, int]]
    events: list[tuple[str | None, int, int, int, str]]
    value_bytes: int
    key_bytes: int
    header_bytes: int

    def __len__(self) -> int: ...
    def values(self, start: int, stop: int, /) -> Block: ...
    def format(self, parts: tuple[bytes | str, ...], start: int, stop: int, /) -> Block: ...
    def json(self, start: int, stop: int, /) -> Block: ...
    def columns(
        self, start: int, stop: int, key: Literal["b", "t", "j"], value: Literal["b", "t", "j"], end_of_time: int, /
    ) -> tuple[Numbers, Numbers, Numbers, Numbers, Strings, Strings, Strings, Strings, Headers | None, int]: ...
    def times(self, start: int, stop: int, end_of_time: int, /) -> Block: ...
    def offsets(self, start: int, stop: int, /) -> Block: ...
    def sizes(self, start: int, stop: int, with_headers: bool, /) -> Block: ...
    def message(
        self, place: int, /
    ) -> tuple[
        str,
        int,
        int,
        bytes | None,
        bytes | None,
        tuple[int, int],
        list[tuple[str, bytes | None]] | Literal[False] | None,
    ]: ...
    def release(self) -> None: ...
    def release_first(self, count: int, /) -> None: ...

class Reader:
    """A consumer that only assigns. Calls raise NativeError, and RuntimeError once it is closed or after a fork."""

    def __new__(cls, properties: dict[str, str], /) -> Reader: ...
    def assign(self, positions: list[Position], /) -> None: ...
    def add(self, positions: list[Position], /) -> None: ...
    def drop(self, positions: list[Position], /) -> None: ...
    def watermarks(self, topic: str, partition: int, seconds: float, /) -> tuple[int, int]: ...
    def consume(self, max_messages: int, max_bytes: int, seconds: float, /) -> Batch: ...
    def wake(self, descriptor: int, /) -> None: ...
    def notes(self) -> list[tuple[int, int, str, str]]: ...
    def close(self) -> None: ...

def is_json(value: bytes, /) -> bool: ...
