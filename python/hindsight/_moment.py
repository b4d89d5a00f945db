"""An instant of a recording."""

from __future__ import annotations

from functools import total_ordering
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _text
from ._channel import Address
from ._memory import Memory
from ._numbers import must
from ._values import (
    Access,
    Instruction,
    Location,
    MemoryMapping,
    Registers,
    Stack,
    Stop,
    Symbol,
    Value,
    Variable,
    Variables,
)

if TYPE_CHECKING:
    from ._listing import Listing
    from ._recording import Recording

#: One or several of something.
Some = Union[str, int, Sequence[Union[str, int]]]


def several(some: Optional[Some]) -> List[Union[str, int]]:
    """A list of one or several."""
    if some is None:
        return []
    return [some] if isinstance(some, (str, int)) else list(some)


def chosen(some: Union[bool, Some, None]) -> Union[bool, List[Union[str, int]], None]:
    """All, some, or none of them."""
    if some is None or some is False:
        return None
    return True if some is True else several(some)


@total_ordering
class Moment:
    """An instant of a recording: before an instruction of one thread.

    It does not change. What moves, such as :meth:`step`, returns another one. Moments can be compared (which is earlier) and are
    keys of dictionaries.
    """

    __slots__ = ("recording", "position", "thread", "count", "image", "_entered", "stop")

    def __init__(self, recording: "Recording", here: Mapping[str, Any], stop: Optional[Stop] = None) -> None:
        #: The recording that it belongs to.
        self.recording: "Recording" = recording
        #: Its position, as commands have it: ``1A2:3F``.
        self.position: str = here["position"]
        #: The number of the thread, as in :attr:`hindsight.Recording.threads`.
        self.thread: int = int(here["thread"])
        #: How many instructions the thread has completed.
        self.count: int = int(here["count"])
        #: The number of the program image. ``None``: not known.
        self.image: Optional[int] = here["image"]
        self._entered: Optional[str] = here.get("entered")
        #: Why the step or run ended that led here. ``None``: none did.
        self.stop: Optional[Stop] = stop

    # What it is.

    def _key(self) -> Tuple[int, int, int, int, bool]:
        segment, offset = self.position.split(":")
        return (int(segment, 16), int(offset, 16), self.thread, self.count, self._entered is not None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moment):
            return NotImplemented
        return self.recording is other.recording and self._key() == other._key()

    def __lt__(self, other: "Moment") -> bool:
        if not isinstance(other, Moment):
            return NotImplemented
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash((id(self.recording), self._key()))

    @property
    def in_handler_entry(self) -> bool:
        """A signal handler has just been entered. The same position and count also name the instant before the signal."""
        return self._entered is not None

    @property
    def _at(self) -> Dict[str, Any]:
        at: Dict[str, Any] = {"thread": self.thread, "count": self.count}
        if self._entered is not None:
            at["entered"] = self._entered
        return at

    def _ask(self, ask: str, **fields: Any) -> Any:
        return self.recording._ask(ask, at=self._at, **fields)

    @property
    def time(self) -> Optional[float]:
        """Seconds since the start of the recording, as well as that is known."""
        time = self._ask("find")["time"]
        return None if time is None else time["seconds"]

    @property
    def time_range(self) -> Optional[Tuple[float, float]]:
        """The earliest and the latest time that it can have been, in seconds since the start."""
        time = self._ask("find")["time"]
        return None if time is None else (time["since"], time["until"])

    # Looking.

    @property
    def registers(self) -> Registers:
        """General registers, ``rip``, ``rflags``, ``fs_base`` and ``gs_base``."""
        return self.registers_of(0)

    def registers_of(self, frame: int) -> Registers:
        """The same in a frame of the call stack, as far as the unwinder restores them."""
        answer = self._ask("registers", frame=frame)
        return Registers({name: must(value) for name, value in answer.items()})

    @property
    def vectors(self) -> Dict[str, Union[int, bytes]]:
        """Vector and x87 registers as bytes, the lowest first; mask and control registers as integers."""
        answer = self._ask("registers", vectors=True)
        wide = ("zmm", "st")
        vectors = {n: v for n, v in answer.items() if n.startswith((*wide, "k", "mxcsr", "fcw", "fsw", "ftw"))}
        return {n: bytes.fromhex(v) if n.startswith(wide) else must(v) for n, v in vectors.items()}

    @property
    def pc(self) -> int:
        """The address of the instruction that comes next."""
        return self.registers["rip"]

    def memory(
        self,
        address: Address,
        length: Optional[int] = None,
        *,
        frame: int = 0,
        candidates: bool = False,
        carried: bool = False,
    ) -> Memory:
        """Bytes of memory, each as far as it is known.

        Args:
            address: An address, or an expression that names memory, such as ``"p->next"``.
            length: In bytes, at most 1 MiB. By default the size of what the expression names, or else 8.
            frame: The frame of the call stack in which names are looked up.
            candidates: Also find out what bytes may have held that are not known.
            carried: Also find out what is carried of them over calls that were not recorded (docs/declared-functions.md).
        """
        options = {"frame": frame, "candidates": candidates, "carried": carried}
        return Memory(self._ask("memory", address=address, length=length, **options))

    @property
    def stack(self) -> Stack:
        """The call stack, as far as it is known."""
        return Stack.of(self._ask("stack"))

    @property
    def variables(self) -> Variables:
        """The parameters and variables in scope."""
        return self.variables_of(0)

    def variables_of(self, frame: int, *, carried: bool = False) -> Variables:
        """The same in a frame of the call stack.

        Args:
            frame: Its number.
            carried: Also find out what is carried of values over calls that were not recorded (docs/declared-functions.md).
        """
        return Variables(Variable.of(v) for v in self._ask("variables", frame=frame, carried=carried))

    def evaluate(self, expression: str, *, frame: int = 0) -> Value:
        """The value of an expression in the language of the program: ``"p->next"``, ``"nodes[2].value"``, ``"$rsp+8"``."""
        answer = self._ask("evaluate", expression=expression, frame=frame)
        return Value(answer["text"], answer["number"])

    def code(self, count: int = 5, *, address: Optional[Address] = None, frame: int = 0) -> List[Instruction]:
        """At most ``count`` instructions, by default those that come next."""
        answer = self._ask("code", instructions=count, address=address, frame=frame)
        return [Instruction(must(i["address"]), bytes.fromhex(i["bytes"]), i["text"]) for i in answer]

    @property
    def mappings(self) -> List[MemoryMapping]:
        """What the process has mapped, as far as that is known."""
        return [
            MemoryMapping(must(m["start"]), must(m["end"]), m["rights"], must(m["offset"]), m["path"])
            for m in self._ask("maps")
        ]

    def symbols(self, name: str) -> List[Symbol]:
        """The functions and variables of a name: ``name`` or ``module!name``. There may be none."""
        (answer,) = self._ask("symbol", names=[name])
        found = answer.get("symbols", [])
        return [Symbol(s["name"], must(s["address"]), s["size"], s["module"], s["file"], s["line"]) for s in found]

    def location(self, address: Optional[int] = None) -> Location:
        """The function and the source line of an address, by default of the instruction that comes next."""
        address = self.pc if address is None else address
        (answer,) = self._ask("symbol", names=[hex(address)])
        place = answer["place"] or {}
        frame = (answer["frames"] or [{}])[0]
        function = place.get("function") or frame.get("function")
        where = (place.get("module"), frame.get("file"), frame.get("line"))
        return Location(address, function, place.get("distance"), *where)

    # Going about.

    def _moved(self, answer: Mapping[str, Any]) -> "Moment":
        details = {k: v for k, v in answer.items() if k not in ("here", "reason", "number")}
        return Moment(self.recording, answer["here"], Stop(answer["reason"], answer.get("number"), details))

    def _step(self, by: str, back: bool, count: int, scope: Optional[str] = None) -> "Moment":
        direction = "backward" if back else "forward"
        return self._moved(self._ask("step", by=by, direction=direction, count=count, scope=scope))

    def step(self, count: int = 1, *, back: bool = False, scope: str = "thread") -> "Moment":
        """So many instructions later, or earlier. At the end of the recording :attr:`stop` has the reason ``end``.

        ``scope`` says whose instructions count: those of the ``thread``, the ``process``, or ``all``.
        """
        return self._step("instruction", back, count, scope)

    def step_over(self, count: int = 1, *, back: bool = False) -> "Moment":
        """The same, where a call counts as one instruction with all that it does."""
        return self._step("over", back, count)

    def step_line(self, count: int = 1, *, back: bool = False) -> "Moment":
        """At another source line, also one of a function that is called: ``step`` of debuggers.

        Backwards it is the beginning of the line that was executed before.
        """
        return self._step("line", back, count)

    def next_line(self, count: int = 1, *, back: bool = False) -> "Moment":
        """The same, where a call is a part of its line: ``next`` of debuggers."""
        return self._step("next", back, count)

    def step_out(self, *, back: bool = False) -> "Moment":
        """After the return of the present function; backwards, before its call."""
        return self._step("out", back, 1)

    def run(
        self,
        breakpoints: Optional[Some] = None,
        *,
        back: bool = False,
        watch: Union[Address, Sequence[Union[Address, Mapping[str, Any]]], None] = None,
        registers: Optional[Some] = None,
        signals: Union[bool, Some, None] = None,
        syscalls: Union[bool, Some, None] = None,
        calls: Optional[Some] = None,
        returns: Optional[Some] = None,
        threads: bool = False,
        modules: bool = False,
        scope: str = "process",
        frame: int = 0,
    ) -> "Moment":
        """Where the program comes first to any of these; backwards, where it was last. :attr:`stop` says which.

        Args:
            breakpoints: Functions, ``"FILE:LINE"`` and addresses.
            back: Go to earlier instants.
            watch: Memory: addresses and expressions that are written to. A dictionary says more: ``address``, ``length``,
                ``access`` (``"read"``, ``"write"`` or ``"any"``), ``changes`` (only where the value changes).
            registers: Names of registers that change.
            signals: Names or numbers of signals; ``True``: all.
            syscalls: Names or numbers of system calls; ``True``: all.
            calls: Functions that are called.
            returns: Functions that return.
            threads: Begin and end of threads.
            modules: Files that are mapped and unmapped.
            scope: Whose instructions count: those of the ``thread``, the ``process``, or ``all``.
            frame: The frame of the call stack in which names are looked up.
        """
        watched = [watch] if isinstance(watch, (str, int)) else list(watch or [])
        answer = self._ask(
            "run",
            direction="backward" if back else "forward",
            breakpoints=several(breakpoints),
            watchpoints=[dict(w) if isinstance(w, Mapping) else {"address": w} for w in watched],
            registers=several(registers),
            signals=chosen(signals),
            syscalls=chosen(syscalls),
            calls=several(calls),
            returns=several(returns),
            threads=threads,
            modules=modules,
            scope=scope,
            frame=frame,
        )
        return self._moved(answer)

    def next(self, code: Some, *, scope: str = "process") -> Optional["Moment"]:
        """The next time that some code is reached: a function, ``"FILE:LINE"`` or an address. ``None``: it never is."""
        found = self.run(code, scope=scope)
        return found if found.stop is not None and found.stop.reason == "breakpoint" else None

    def previous(self, code: Some, *, scope: str = "process") -> Optional["Moment"]:
        """The last time before that some code was reached. ``None``: it never was."""
        found = self.run(code, back=True, scope=scope)
        return found if found.stop is not None and found.stop.reason == "breakpoint" else None

    def hits(self, code: Some, *, back: bool = False, scope: str = "process") -> Iterator["Moment"]:
        """All times from here on, or back, that some code is reached. Each is searched for when it is asked for."""
        at: Moment = self
        while True:
            found = at.previous(code, scope=scope) if back else at.next(code, scope=scope)
            if found is None:
                return
            yield found
            at = found

    # Who accessed memory.

    def _access(self, address: Address, length: Optional[int], frame: int, **how: str) -> Optional[Access]:
        found = self._ask("access", address=address, length=length, frame=frame, **how)
        return None if found is None else self.recording._access(found, self.image)

    def last_write(self, address: Address, length: Optional[int] = None, *, frame: int = 0) -> Optional[Access]:
        """Who wrote to any of these bytes last. ``None``: nothing that is recorded."""
        return self._access(address, length, frame, direction="backward", access="write")

    def last_read(self, address: Address, length: Optional[int] = None, *, frame: int = 0) -> Optional[Access]:
        """Who read any of these bytes last."""
        return self._access(address, length, frame, direction="backward", access="read")

    def first_use(self, address: Address, length: Optional[int] = None, *, frame: int = 0) -> Optional[Access]:
        """Who reads or writes any of these bytes first, from here on."""
        return self._access(address, length, frame, direction="forward", access="any")

    def next_write(self, address: Address, length: Optional[int] = None, *, frame: int = 0) -> Optional[Access]:
        """Who writes to any of these bytes first, from here on."""
        return self._access(address, length, frame, direction="forward", access="write")

    def writes(self, address: Address, length: Optional[int] = None, *, frame: int = 0) -> "Listing[Access]":
        """All writes to any of these bytes before, the last one first."""
        return self.recording._writes(self, address, length, frame)

    # Showing itself.

    def __repr__(self) -> str:
        why = f", {_text.line(self.stop)}" if self.stop is not None else ""
        return f"<Moment {_text.line(self.position)} thread {self.thread}, {self.count} instructions{why}>"

    def _repr_html_(self) -> str:
        from ._show import moment

        return moment(self)
