"""What answers are made of. All of it is read only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._errors import UnknownValueError
from ._memory import Completed
from ._numbers import known, must, number
from ._text import cell, columns, line, table

if TYPE_CHECKING:
    from ._moment import Moment

#: Flags that programs see, by their bits.
FLAGS = {0: "CF", 2: "PF", 4: "AF", 6: "ZF", 7: "SF", 10: "DF", 11: "OF", 18: "AC", 21: "ID"}


class Registers(Mapping[str, int]):
    """Registers by their names, as integers: ``r["rax"]`` or ``r.rax``. ``rip`` and ``rflags`` are among them."""

    __slots__ = ("_all",)

    def __init__(self, all_: Mapping[str, int]) -> None:
        self._all = dict(all_)

    def __getitem__(self, name: str) -> int:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._all[name]
        except KeyError:
            raise AttributeError(f"there is no register {name}") from None

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *self._all]

    @property
    def flags(self) -> List[str]:
        """The flags that are set, such as ``["CF", "ZF"]``."""
        value = self._all.get("rflags", 0)
        return [name for bit, name in FLAGS.items() if value >> bit & 1]

    def _rows(self) -> List[Tuple[str, str]]:
        return [(name, f"{value:#x}") for name, value in self._all.items()]

    def __repr__(self) -> str:
        return columns(self._rows())

    def _repr_html_(self) -> str:
        return table(("register", "value"), self._rows())


@dataclass(frozen=True)
class Frame:
    """A function in a call stack. Inlined functions have frames of their own."""

    #: Its number, from 0 for the innermost.
    number: int
    pc: int
    function: Optional[str]
    file: Optional[str]
    line: Optional[int]
    module: Optional[str]
    #: Bytes from the beginning of the function to ``pc``.
    distance: Optional[int]
    inlined: bool = False
    #: It is the frame of a signal handler's caller, which the kernel made.
    signal: bool = False
    #: It called the inner frame by a jump, and is not there any more.
    tail: bool = False

    def __str__(self) -> str:
        if self.signal:
            return f"#{self.number} {self.pc:#018x} <signal handler called>"
        name = self.function or "?"
        marks = " (inlined)" if self.inlined else ""
        if self.file is not None:
            where = f" at {self.file}:{self.line}"
        else:
            where = f" in {self.module}" if self.module else ""
        return line(f"#{self.number} {self.pc:#018x} {name}{marks}{where}{' (tail call)' if self.tail else ''}")

    def __repr__(self) -> str:
        return f"<{self}>"


class Stack(List[Frame]):
    """A call stack, the innermost frame first."""

    @classmethod
    def of(cls, answer: Sequence[Mapping[str, Any]]) -> "Stack":
        out = cls()
        for f in answer:
            place = f["place"] or {}
            for inner in f["frames"] or [{}]:
                out.append(
                    Frame(
                        number=len(out),
                        pc=must(f["pc"]),
                        function=inner.get("function") or place.get("function"),
                        file=inner.get("file"),
                        line=inner.get("line"),
                        module=place.get("module"),
                        distance=place.get("distance"),
                        inlined=bool(inner.get("inlined")),
                        signal=f["signal"],
                        tail=f["tail"],
                    )
                )
                if f["signal"]:
                    break
        return out

    def __repr__(self) -> str:
        return "\n".join(str(f) for f in self)

    def _repr_html_(self) -> str:
        rows = []
        for f in self:
            where = f"{f.file}:{f.line}" if f.file else f.module
            name = "<signal handler called>" if f.signal else f.function
            rows.append((f.number, f"{f.pc:#x}", name, "inlined" if f.inlined else "", where))
        return table(("", "pc", "function", "", "where"), rows, "call stack")


@dataclass(frozen=True)
class Variable:
    """A variable or parameter that is in scope, with its value as far as it is known."""

    name: str
    type: str
    #: The value as debuggers show it. ``?`` stands for what is not known.
    text: str
    #: The value as a number without a sign. ``None``: it is none, has more than 8 bytes, or is not known.
    integer: Optional[int]
    #: In bytes, if the debug information says that.
    size: Optional[int]
    parameter: bool
    #: Where it is, in words.
    location: str
    #: Each byte of it. ``None``: that byte is not known.
    data: Tuple[Optional[int], ...]
    #: For a parameter what was passed, if the caller says that.
    passed: Optional[str]
    #: The value, completed with what is carried. ``None``: that says nothing more, or was not asked for.
    carried: Optional[Completed] = None
    #: The same of what was passed.
    passed_carried: Optional[Completed] = None

    @classmethod
    def of(cls, v: Mapping[str, Any]) -> "Variable":
        return cls(
            v["name"],
            v["type"],
            v["text"],
            number(v["integer"]),
            v["size"],
            v["parameter"],
            v["location"],
            known(v["bytes"]),
            v["passed"],
            Completed.of(v["carried"]),
            Completed.of(v["passed_carried"]),
        )

    def __str__(self) -> str:
        more = "" if self.carried is None else f"; {self.carried}"
        return line(f"{self.type} {self.name} = {self.text if self.data else '?'}{more}")

    def __repr__(self) -> str:
        return f"<{self}>"


class Variables(List[Variable]):
    """The variables in scope. ``v["name"]`` is the innermost one of that name."""

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, str):
            return super().__getitem__(at)
        for v in self:
            if v.name == at:
                return v
        raise KeyError(at)

    def __repr__(self) -> str:
        return "\n".join(str(v) for v in self)

    def _repr_html_(self) -> str:
        more = ["" if v.carried is None else f"; {v.carried}" for v in self]
        rows = [(v.type, v.name, v.text + m if v.data else None, v.location) for v, m in zip(self, more)]
        return table(("type", "name", "value", "where"), rows)


@dataclass(frozen=True)
class Value:
    """What an expression amounts to."""

    #: As debuggers show it. ``?`` stands for what is not known.
    text: str
    #: As a number, if it is one that is known and fits 64 bits with a sign.
    number: Optional[int]

    def __str__(self) -> str:
        return line(self.text)

    def __int__(self) -> int:
        if self.number is None:
            raise UnknownValueError(f"{line(self.text)} is no number, or not known")
        return self.number


@dataclass(frozen=True)
class Instruction:
    """An instruction as text, in Intel's notation."""

    address: int
    data: bytes
    text: str

    def __str__(self) -> str:
        return line(f"{self.address:#x}  {self.text}")


@dataclass(frozen=True)
class MemoryMapping:
    """A stretch of mapped memory."""

    start: int
    end: int
    #: As in ``/proc/PID/maps``: ``rw-p``.
    rights: str
    offset: int
    path: str

    def __str__(self) -> str:
        return line(f"{self.start:08x}-{self.end:08x} {self.rights} {self.offset:08x} {self.path}")


@dataclass(frozen=True)
class Symbol:
    """A function or variable."""

    name: str
    address: int
    size: Optional[int]
    module: str
    file: Optional[str]
    line: Optional[int]

    def __str__(self) -> str:
        return line(f"{self.address:#x} {self.name}")


@dataclass(frozen=True)
class Location:
    """What an address belongs to."""

    address: int
    function: Optional[str]
    #: Bytes from the beginning of the function.
    distance: Optional[int]
    module: Optional[str]
    file: Optional[str]
    line: Optional[int]

    def __str__(self) -> str:
        name = self.function or "?"
        past = f"+{self.distance:#x}" if self.distance else ""
        where = f" at {self.file}:{self.line}" if self.file else ""
        return line(f"{self.address:#x} {name}{past}{where}")


@dataclass(frozen=True)
class Process:
    """A program image: a process from ``fork`` or ``execve`` to the next ``execve`` or its end."""

    image: int
    parent: int
    pid: int
    command: str
    threads: Tuple[int, ...]
    #: The positions of its first and last instant.
    begin: str
    end: str
    #: It came by ``execve``; otherwise by ``fork``.
    by_exec: bool
    #: The recording has all that it did since it was loaded.
    is_whole: bool


@dataclass(frozen=True)
class Thread:
    """A thread. Counts are numbers of instructions that it has completed."""

    thread: int
    tid: int
    pid: int
    image: int
    name: str
    begin: str
    end: str
    begin_count: int
    end_count: int
    #: How it ended, in words.
    ending: str
    #: Its exit status, if it exited, and the signal that killed it, if one did.
    status: Optional[int]
    signal: Optional[int]


@dataclass(frozen=True)
class Module:
    """A mapped file."""

    image: int
    path: str
    start: int
    end: int
    #: The positions at which it was mapped first and unmapped last. ``None``: from the beginning, or never.
    load: Optional[str]
    unload: Optional[str]
    #: Names its content, if the recording has it.
    hash: Optional[str]


@dataclass(frozen=True)
class StatePoint:
    """An instant at which the recording has all memory of a program with one thread."""

    #: Its number among the state points that were asked for, from 1.
    number: int
    moment: "Moment"
    #: The name that the program gave. ``None``: the recorder made it by itself.
    name: Optional[str]
    #: Bytes of memory that it restates.
    bytes: int
    #: It restates only what has changed since an earlier one.
    is_change: bool
    #: All files are recorded that the program had mapped.
    is_whole: bool

    def __str__(self) -> str:
        name = "" if self.name is None else f" {line(self.name)}"
        return f"state {self.number}{name} at {self.moment.position}"


@dataclass(frozen=True)
class Event:
    """Something that happened: a system call, a signal, the end of a thread, …."""

    kind: str
    moment: "Moment"
    #: All that is known of it, as ``hindsight events --json`` has it.
    details: Dict[str, Any] = field(repr=False, hash=False, compare=False)

    def __getattr__(self, name: str) -> Any:
        details = self.__dict__.get("details") or {}
        if name in details:
            return details[name]
        raise AttributeError(f"a {self.__dict__.get('kind')} has no {name}")

    def __str__(self) -> str:
        d = self.details
        if self.kind == "syscall":
            # A call may have none.
            arguments = ", ".join(d["arguments"] if d.get("arguments") is not None else d["args"])
            result = d["returned"] if d.get("returned") is not None else d["result"]
            text = f"{d['name']}({arguments}) = {'?' if result is None else result}"
        elif self.kind == "signal":
            text = f"signal {d['number']} code {d['code']} at {d['address']}"
        else:
            rest = {k: v for k, v in d.items() if k not in ("kind", "position", "thread", "count", "time")}
            text = " ".join([self.kind, *(f"{k}={v}" for k, v in rest.items())])
        return line(text)

    def __repr__(self) -> str:
        return f"<{line(self.moment.position)} {self}>"

    def _row(self) -> Tuple[Any, ...]:
        return (self.moment.position, self.moment.thread, self.kind, str(self))

    _head = ("position", "thread", "kind", "what")


@dataclass(frozen=True)
class Argument:
    """An argument of a call. ``value`` is a number if it is one; ``text`` is as debuggers show it."""

    name: str
    type: Optional[str]
    value: Union[int, float, None]
    text: Optional[str]


@dataclass(frozen=True)
class Call:
    """A call of a function."""

    function: str
    address: int
    thread: int
    #: Where the function's first instruction comes next.
    moment: "Moment"
    #: Where it has returned. ``None``: not within the recording, or by other means.
    returned: Optional["Moment"]
    #: What it returned, as a number and as text. ``None``: not known, or nothing.
    value: Union[int, float, None]
    text: Optional[str]
    #: What rax held when it returned.
    rax: Optional[int]
    #: Who called it, such as ``prog!main+0x9``.
    caller: Optional[str]
    #: ``None``: they were not asked for.
    arguments: Optional[Tuple[Argument, ...]]
    #: The kernel called it to handle a signal.
    handler: bool

    def __str__(self) -> str:
        arguments = "…"
        if self.arguments is not None:
            shown = ("?" if a.text is None else a.text for a in self.arguments)
            arguments = ", ".join(f"{a.name}={t}" if a.name else t for a, t in zip(self.arguments, shown))
        if self.returned is None:
            end = "  does not return"
        else:
            end = f" = {self.text}" if self.text is not None else ""
        return line(f"{self.function}({arguments}){end}")

    def __repr__(self) -> str:
        return f"<{line(self.moment.position)} {self}>"

    def _row(self) -> Tuple[Any, ...]:
        return (self.moment.position, self.thread, str(self), self.caller)

    _head = ("position", "thread", "call", "caller")


@dataclass(frozen=True)
class Access:
    """An instruction that accessed memory, or a system call or signal by which the kernel did."""

    #: The instant before it.
    moment: "Moment"
    #: The address of the instruction.
    pc: int
    #: What was accessed.
    address: int
    length: int
    read: bool
    write: bool
    #: The kernel did it.
    kernel: bool
    #: Of a write: what the first of the bytes that were asked for hold after it. ``None``: that byte is not known.
    data: Optional[Tuple[Optional[int], ...]] = None

    def __str__(self) -> str:
        what = " and ".join(w for w, is_ in (("reads", self.read), ("writes", self.write)) if is_)
        data = ""
        if self.data is not None:
            data = "; then " + " ".join("??" if b is None else f"{b:02x}" for b in self.data)
        who = "the kernel " if self.kernel else ""
        return line(f"{self.pc:#x} {who}{what} {self.length} bytes at {self.address:#x}{data}")

    def __repr__(self) -> str:
        return f"<{line(self.moment.position)} {self}>"

    def _row(self) -> Tuple[Any, ...]:
        return (self.moment.position, self.moment.thread, str(self))

    _head = ("position", "thread", "access")


@dataclass(frozen=True)
class Transfer:
    """Bytes that a call moved through a descriptor. What is long comes in several pieces."""

    #: The instant before the call.
    moment: "Moment"
    pid: int
    #: The name of the call.
    call: str
    fd: int
    #: What the descriptor leads to.
    name: str
    #: ``out``: they were written; ``in``: they were read.
    way: str
    #: Where in the file the call's bytes are, if that is known.
    offset: Optional[int]
    #: How many bytes the call moved, and how many of them come before this piece.
    length: int
    before: int
    #: The bytes of this piece; ``None``: that byte is not known. Of bytes that never were in memory there is nothing here.
    data: Tuple[Optional[int], ...] = field(repr=False)
    #: Whether the bytes were in the program's memory.
    in_memory: bool = True

    @property
    def is_known(self) -> bool:
        """Whether all bytes of the piece are known."""
        return self.in_memory and None not in self.data

    def __bytes__(self) -> bytes:
        if not self.is_known:
            raise UnknownValueError("not all bytes are known that this call moved")
        return bytes(b for b in self.data if b is not None)

    def text(self, encoding: str = "utf-8", errors: str = "backslashreplace") -> str:
        """The bytes as text."""
        return bytes(self).decode(encoding, errors)

    def __str__(self) -> str:
        if not self.in_memory:
            return line(f"{self.length} bytes that were not in memory")
        missing = sum(b is None for b in self.data)
        # What is not known keeps its place.
        shown = bytes(ord("?") if b is None else b for b in self.data).decode("utf-8", "backslashreplace")
        return line(shown) + (f" ({missing} unknown bytes)" if missing else "")

    def _row(self) -> Tuple[Any, ...]:
        return (self.moment.position, self.pid, self.fd, self.way, str(self))

    _head = ("position", "process", "fd", "way", "bytes")


@dataclass(frozen=True)
class Stop:
    """Why a step or a run ended: ``step``, ``breakpoint``, ``watchpoint``, ``signal``, ``call``, ``end``, …."""

    reason: str
    #: Which breakpoint or watchpoint it was, from 0.
    number: Optional[int]
    #: All that is known of it; docs/serve.md says what.
    details: Dict[str, Any] = field(repr=False, hash=False, compare=False)

    def __str__(self) -> str:
        return self.reason


def listing(rows: Sequence[Any], more: bool, total: Optional[int], what: str, missing: Sequence[str]) -> str:
    """The first elements of a long list as a table in HTML."""
    words = {"gaps": "parts of the run are not recorded", "hidden": "some ways in and out are not recorded"}
    notes = [f"the first {len(rows)}; iterate for all"] if more else []
    notes += [words.get(one, one) for one in missing]
    note = "; ".join(notes)
    if not rows:
        return f"<div>no {cell(what)}" + (f" ({cell(note)})" if note else "") + "</div>"
    count = f"{total} {what}" if total is not None else what
    return table(rows[0]._head, (r._row() for r in rows), count, note or None)
