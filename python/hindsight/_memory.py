"""Bytes of memory, what is known of them, and what is carried over calls that were not recorded. All of it is read only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union, overload

from ._errors import UnknownValueError
from ._numbers import known, must, number
from ._text import line, table

#: Bytes of memory in one line of text.
ROW = 16


@dataclass(frozen=True)
class Candidate:
    """A value that memory may have held, which is not certain."""

    address: int
    data: bytes
    thread: int
    position: str
    why: str


@dataclass(frozen=True)
class Carried:
    """Neighbouring bytes that are carried over calls that were not recorded.

    The recording does not tell what they are. It tells what they were elsewhere, and functions that are declared to write something
    else were called in between. A declaration may be wrong.
    """

    address: int
    data: bytes
    #: Where the recording tells what they are.
    position: str
    #: Why they are known there, such as ``written``.
    ground: str
    #: How many gaps are in between.
    gaps: int
    #: What was called there, as it is declared.
    declarations: Tuple[str, ...]

    @classmethod
    def of(cls, c: Mapping[str, Any]) -> "Carried":
        declarations = tuple(c["declarations"])
        return cls(must(c["address"]), bytes(c["bytes"]), c["from"], c["ground"], c["gaps"], declarations)

    def __str__(self) -> str:
        gaps = "1 gap" if self.gaps == 1 else f"{self.gaps} gaps"
        where = f"{self.ground} at {self.position}, {gaps} away: {', '.join(self.declarations)}"
        return line(f"{self.address:#x} {self.data.hex(' ')} (carried; {where})")

    def __repr__(self) -> str:
        return f"<{self}>"


class Memory(Sequence[Optional[int]]):
    """Bytes of memory at an instant. A byte that is not known is ``None``, and never zero.

    What is carried is not among the bytes: :attr:`carried` has it, and :meth:`completed` adds it.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        #: The address of the first byte.
        self.address: int = must(answer["address"])
        self._bytes: Tuple[Optional[int], ...] = tuple(answer["bytes"])
        #: Why bytes are known: address, length and reason (``None``: they are not known) of each stretch.
        self.grounds: List[Tuple[int, int, Optional[str]]] = [
            (must(g["address"]), g["length"], g["ground"]) for g in answer["grounds"]
        ]
        #: What bytes may have held that are not known. Only filled if it was asked for.
        self.candidates: List[Candidate] = [
            Candidate(must(c["address"]), bytes(c["bytes"]), c["thread"], c["position"], c["why"]) for c in answer["candidates"]
        ]
        #: What is carried of bytes that are not known. Only filled if it was asked for.
        self.carried: List[Carried] = [Carried.of(c) for c in answer.get("carried") or ()]

    @overload
    def __getitem__(self, at: int) -> Optional[int]: ...

    @overload
    def __getitem__(self, at: slice) -> Tuple[Optional[int], ...]: ...

    def __getitem__(self, at: Union[int, slice]) -> Any:
        return self._bytes[at]

    def __len__(self) -> int:
        return len(self._bytes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (bytes, bytearray)):
            return self.is_known and bytes(self) == other
        if isinstance(other, Memory):
            return (self.address, self._bytes) == (other.address, other._bytes)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.address, self._bytes))

    @property
    def mask(self) -> List[bool]:
        """For each byte whether it is *not* known, as numpy's masked arrays have it."""
        return [b is None for b in self._bytes]

    @property
    def is_known(self) -> bool:
        """Whether all bytes are known."""
        return None not in self._bytes

    def completed(self) -> Tuple[Optional[int], ...]:
        """The bytes, with what is carried where they are not known. ``None``: neither."""
        out = list(self._bytes)
        for c in self.carried:
            at = c.address - self.address
            out[at : at + len(c.data)] = c.data
        return tuple(out)

    def __bytes__(self) -> bytes:
        if not self.is_known:
            unknown = sum(self.mask)
            raise UnknownValueError(f"{unknown} of {len(self)} bytes from {self.address:#x} on are not known")
        return bytes(b for b in self._bytes if b is not None)

    def text(self, encoding: str = "utf-8", errors: str = "backslashreplace") -> str:
        """The text up to the first zero byte.

        Raises:
            UnknownValueError: A byte of it is not known.
        """
        known = bytearray()
        for b in self._bytes:
            if b is None:
                raise UnknownValueError(f"the byte at {self.address + len(known):#x} is not known")
            if b == 0:
                break
            known.append(b)
        return known.decode(encoding, errors)

    def integer(self, signed: bool = False) -> Optional[int]:
        """All bytes as one number, the lowest first. ``None``: some are not known."""
        return int.from_bytes(bytes(self), "little", signed=signed) if self.is_known else None

    def to_numpy(self) -> Any:
        """A masked array of numpy. Bytes that are not known are masked."""
        import numpy

        data = [0 if b is None else b for b in self._bytes]
        return numpy.ma.masked_array(numpy.array(data, dtype="u1"), mask=self.mask)

    def _rows(self) -> List[Tuple[str, str, str]]:
        rows = []
        for at in range(0, len(self), ROW):
            row = self._bytes[at : at + ROW]
            numbers = " ".join("??" if b is None else f"{b:02x}" for b in row)
            text = "".join("?" if b is None else chr(b) if 0x20 <= b < 0x7F else "." for b in row)
            rows.append((f"{self.address + at:#014x}", numbers.ljust(3 * ROW - 1), text))
        return rows

    def __repr__(self) -> str:
        return "\n".join(["  ".join(row) for row in self._rows()] + [str(c) for c in self.carried])

    def _repr_html_(self) -> str:
        carried = [(f"{c.address:#014x}", c.data.hex(" "), "carried") for c in self.carried]
        return table(("address", "bytes", "text"), self._rows() + carried)


@dataclass(frozen=True)
class Completed:
    """A value of which some bytes are not known, but carried over calls that were not recorded."""

    #: As debuggers show it.
    text: str
    #: As a number without a sign. ``None``: it is none, has more than 8 bytes, or some are neither known nor carried.
    integer: Optional[int]
    #: Each byte, known or carried. ``None``: neither.
    data: Tuple[Optional[int], ...]
    #: What is carried of it, and of what it points to.
    carried: Tuple[Carried, ...]

    @classmethod
    def of(cls, v: Optional[Mapping[str, Any]]) -> Optional["Completed"]:
        if v is None:
            return None
        return cls(v["text"], number(v["integer"]), known(v["bytes"]), tuple(Carried.of(c) for c in v["from"]))

    def __str__(self) -> str:
        return line(f"{self.text} (carried)")
