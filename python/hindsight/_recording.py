"""A recording."""

from __future__ import annotations

import os
import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from . import _text
from ._channel import Address, Answer, Channel
from ._errors import PlaceError, RequestError
from ._listing import Listing
from ._moment import Moment, several
from ._numbers import must, number
from ._sql import Rows
from ._values import (
    Access,
    Argument,
    Call,
    Event,
    Module,
    Process,
    StatePoint,
    Thread,
    Transfer,
)

#: A place in a recording: a moment, or text such as ``"50%"``, ``"crash"``, ``"1A2:3F"``, ``"time:1.5s"``.
Place = Union[str, Moment]


class Recording:
    """An open recording. Close it with :meth:`close`, or use it in a ``with`` statement.

    A process of its own answers all questions. It ends when the recording is closed, is not used any more, or this process ends.
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]"],
        *,
        max_memory: Optional[str] = None,
        processor: Optional[str] = None,
        declared: Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]] = (),
    ) -> None:
        options = [] if max_memory is None else [f"--max-memory={max_memory}"]
        options += [] if processor is None else [f"--processor={processor}"]
        self._options = options
        path = os.fspath(path)
        declared = [declared] if isinstance(declared, (str, os.PathLike)) else declared
        declarations = [f"--declared={os.fspath(file)}" for file in declared]
        self._channel = Channel(path, options + declarations)
        self._close = weakref.finalize(self, self._channel.close)
        #: The file.
        self.path: str = os.path.abspath(path if os.path.exists(path) else self._channel.ready["file"])
        #: The recording was still being written when it was opened. It is seen as it was then.
        self.being_recorded: bool = self._channel.ready["being_recorded"]
        self._info: Optional[Dict[str, Any]] = None
        self._images: Dict[int, int] = {}

    def close(self) -> None:
        """Ends the process that answers. The recording cannot be asked any more."""
        self._close()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cancel(self) -> None:
        """Cancels what other threads ask just now: there :class:`hindsight.CancelledError` is raised. Ctrl-C cancels by itself."""
        self._channel.cancel()

    def _answer(self, ask: str, **fields: Any) -> Answer:
        return self._channel.ask(ask, {name: value for name, value in fields.items() if value is not None})

    def _ask(self, ask: str, **fields: Any) -> Any:
        return self._answer(ask, **fields).result

    # What there is.

    @property
    def info(self) -> Dict[str, Any]:
        """What is known of the recording as a whole, as ``hindsight info --json`` tells it."""
        if self._info is None:
            self._info = self._ask("info")
        return self._info

    @property
    def command(self) -> str:
        """The command that was recorded."""
        return str(self.info["command"])

    @property
    def instructions(self) -> int:
        """How many instructions were recorded."""
        return int(self.info["instructions"])

    @property
    def processes(self) -> List[Process]:
        """All program images, parents before children."""
        return [Process(**{**p, "threads": tuple(p["threads"])}) for p in self._ask("processes")]

    @property
    def threads(self) -> List[Thread]:
        """All threads of all processes, in the order in which they were first seen."""
        return [Thread(**t) for t in self._ask("threads")]

    @property
    def modules(self) -> List[Module]:
        """The files that the program images had mapped."""
        return [Module(**{**m, "start": must(m["start"]), "end": must(m["end"])}) for m in self._ask("modules")]

    # Moments.

    def _place(self, place: Optional[Place]) -> Optional[str]:
        """A place as text."""
        if not isinstance(place, Moment):
            return place
        if place.recording is not self:
            raise RequestError("that moment is of another recording")
        return place.position

    def at(self, place: Place, *, image: Optional[int] = None, thread: Optional[int] = None) -> Moment:
        """A moment: ``"50%"``, ``"crash"``, ``"end"``, ``"1A2:3F"``, ``"event:7"``, ``"syscall:write:2"``, ``"time:1.5s"``.

        Args:
            place: What commands take as a place.
            image: In this program image; places are counted in it.
            thread: In this thread, where it then is.
        """
        text = self._place(place)
        if isinstance(place, Moment) and image is None and thread is None:
            # A position does not say which thread, and not whether a signal handler has been entered.
            return Moment(self, self._ask("find", at=place._at))
        return Moment(self, self._ask("find", at=text, image=image, thread=thread))

    @property
    def begin(self) -> Moment:
        """The first moment."""
        return self.at("begin")

    @property
    def end(self) -> Moment:
        """The last moment."""
        return self.at("end")

    @property
    def crash(self) -> Optional[Moment]:
        """Where a signal killed the program. ``None``: none did, or it is not recorded where."""
        try:
            return self.at("crash")
        except PlaceError:
            return None

    def _moment(self, item: Mapping[str, Any], image: Optional[int] = None) -> Moment:
        """The moment that an element of a list says."""
        if image is None:
            if item["thread"] not in self._images:
                self._images = {t.thread: t.image for t in self.threads}
            image = self._images.get(item["thread"])
        return Moment(self, {**item, "image": image})

    # Lists.

    def events(
        self,
        kinds: Union[str, Sequence[str], None] = None,
        *,
        syscalls: Union[str, Sequence[str], None] = None,
        thread: Optional[int] = None,
        image: Optional[int] = None,
        from_: Optional[Place] = None,
        until: Optional[Place] = None,
        arguments: bool = False,
        time: bool = False,
    ) -> "Listing[Event]":
        """What happened, in the order of time.

        Args:
            kinds: ``syscall``, ``signal``, ``exception``, ``thread``, ``process``, ``module``, ``gap``, ``mark``, ``regime``.
            syscalls: Names of system calls.
            thread: Only of this thread.
            image: Only of this program image.
            from_: Not before this place.
            until: Before this place.
            arguments: Show what system calls were given in words. That replays the recording.
            time: Tell when each was (``event.time``).
        """
        fields = {
            "kinds": several(kinds),
            "syscalls": several(syscalls),
            "thread": thread,
            "image": image,
            "from": self._place(from_),
            "until": self._place(until),
            "arguments": arguments,
            "time": time,
        }
        return Listing(self, "events", "events", fields, lambda e: Event(e["kind"], self._moment(e), e))

    def calls(
        self,
        function: Union[str, int],
        *,
        arguments: bool = True,
        thread: Optional[int] = None,
        image: Optional[int] = None,
        from_: Optional[Place] = None,
        until: Optional[Place] = None,
    ) -> "Listing[Call]":
        """All calls of a function (``name``, ``module!name`` or an address), in the order of time.

        Without ``arguments`` they come sooner. The first question about a function replays the recording.
        """
        fields = {
            "function": function,
            "arguments": arguments,
            "thread": thread,
            "image": image,
            "from": self._place(from_),
            "until": self._place(until),
        }
        return Listing(self, f"calls of {_text.line(function)}", "calls", fields, self._call)

    def _call(self, c: Mapping[str, Any]) -> Call:
        back = c["returned"]
        moment = Moment(self, c["here"])
        arguments = c.get("arguments")
        return Call(
            function=c["function"],
            address=must(c["address"]),
            thread=c["thread"],
            moment=moment,
            returned=None if back is None else self._moment({**back, "thread": c["thread"]}, moment.image),
            value=None if back is None else back["value"],
            text=None if back is None else back["text"],
            rax=None if back is None else number(back["rax"]),
            caller=None if back is None else back["caller"],
            arguments=None if arguments is None else tuple(Argument(**a) for a in arguments),
            handler=c["handler"],
        )

    def states(self, *, image: Optional[int] = None) -> "Listing[StatePoint]":
        """The state points of a program image, or of all, in the order of time. There the recording has all memory."""
        return Listing(self, "state points", "states", {"image": image}, self._state)

    def _state(self, s: Mapping[str, Any]) -> StatePoint:
        return StatePoint(
            number=s["number"],
            moment=Moment(self, {**s, "count": s["instructions"]}),
            name=s["name"],
            bytes=s["bytes"],
            is_change=s["is_change"],
            is_whole=s["is_whole"],
        )

    def writes(self, address: Address, length: Optional[int] = None) -> "Listing[Access]":
        """All writes to any of these bytes, the last one first. Names are looked up at the end."""
        return self.end.writes(address, length)

    def _writes(self, at: Moment, address: Address, length: Optional[int], frame: int) -> "Listing[Access]":
        fields = {"at": at._at, "address": address, "length": length, "frame": frame}
        return Listing(self, f"writes to {_text.line(address)}", "writes", fields, lambda w: self._access(w))

    def _access(self, a: Mapping[str, Any], image: Optional[int] = None) -> Access:
        value = a.get("value")
        return Access(
            moment=self._moment(a, image),
            pc=must(a["pc"]),
            address=must(a["address"]),
            length=a["length"],
            read=a.get("read", False),
            write=a.get("write", True),
            kernel=a["kernel"],
            data=None if value is None else tuple(value),
        )

    def output(
        self,
        fd: Union[int, str, None] = None,
        *,
        input: bool = False,
        thread: Optional[int] = None,
        image: Optional[int] = None,
        from_: Optional[Place] = None,
        until: Optional[Place] = None,
    ) -> "Listing[Transfer]":
        """What the program printed, call by call.

        Args:
            fd: What was first open as this descriptor, or a file by its path or the end of it. By default its standard output and
                its standard error.
            input: What it read as well, and what went through any descriptor.
            thread: Only of this thread.
            image: Only of this program image.
            from_: Not before this place.
            until: Before this place.
        """
        fields = {
            "fd": fd,
            "input": input,
            "thread": thread,
            "image": image,
            "from": self._place(from_),
            "until": self._place(until),
        }
        return Listing(self, "output", "output", fields, self._transfer)

    def _transfer(self, t: Mapping[str, Any]) -> Transfer:
        data: Iterable[Optional[int]] = t["bytes"] or ()
        if t["text"] is not None:
            data = t["text"].encode("utf-8")
        return Transfer(
            moment=self._moment(t),
            pid=t["pid"],
            call=t["call"],
            fd=t["fd"],
            name=t["name"],
            way=t["way"],
            offset=t["offset"],
            length=t["length"],
            before=t["from"],
            data=tuple(data),
            in_memory=t["in_memory"],
        )

    # SQL.

    def sql(self, question: str) -> Rows:
        """Asks in SQL: ``rows = r.sql("SELECT * FROM calls('f')")``. docs/sql.md describes the tables."""
        return Rows([self.path], question, self._options)

    # Showing itself.

    def __repr__(self) -> str:
        return f"<Recording {_text.line(self.path)}>"

    def _repr_html_(self) -> str:
        from ._show import recording

        return recording(self)
