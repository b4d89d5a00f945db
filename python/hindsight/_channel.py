"""A process that answers questions about a recording, and the pipes to it.

Nothing of a recording is ever read in this process: a stranger's recording must not be able to take it over. The process at the
other end is confined. What comes from there is JSON, which Python's own parser reads, or for :meth:`hindsight.Rows.to_arrow` a stream
that pyarrow parses.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from typing import Any, Dict, IO, List, Optional, Set, Union

from . import _errors, _programs, _text

#: The version of the protocol that this client speaks.
PROTOCOL = 1
#: The longest line of an answer, and the longest answer, in bytes.
LONGEST, MOST = 64 << 20, 256 << 20
#: How long an idle process may take to end by itself, in seconds.
PATIENCE = 2.0


class _Slot:
    """The answer to a question, as far as it has come."""

    def __init__(self, items: Optional[List[Any]] = None) -> None:
        self.items: List[Any] = [] if items is None else items
        self.bytes = 0
        self.result: Any = None
        self.error: Optional[_errors.Error] = None
        self.done = threading.Event()


class Channel:
    """One process. It is safe to ask from several threads; questions are answered in turn."""

    def __init__(self, path: str, options: List[str]) -> None:
        command = [_programs.find("hindsight"), "serve", *options, "--", path]
        self._owner = os.getpid()
        # A file, and no pipe: nobody need read it while the process runs.
        self._messages = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            bufsize=0,
            # Ctrl-C goes to this process only, which then cancels what it asked.
            start_new_session=True,
        )
        # An object may be cleared away while this thread has it.
        self._lock = threading.RLock()
        self._slots: Dict[int, _Slot] = {}
        #: Questions that nobody waits for any more. What they opened is closed.
        self._abandoned: Set[int] = set()
        self._last = 0
        self._ended: Optional[_errors.Error] = None
        self._outbox: "queue.SimpleQueue[Optional[bytes]]" = queue.SimpleQueue()
        self.ready: Dict[str, Any] = {}
        self.progress: int = 0
        ready = self._slots[0] = _Slot()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        threading.Thread(target=self._write, args=(self._process.stdin,), daemon=True).start()
        try:
            self._wait(ready)
        except BaseException:
            self.close()
            raise
        if self.ready.get("protocol") != PROTOCOL:
            self.close()
            raise _errors.SessionError(
                f"{command[0]} speaks version {self.ready.get('protocol')} of the protocol, and this package {PROTOCOL}"
            )

    # Two threads do the reading and writing. So an exception in the thread that asks, such as that of Ctrl-C, never leaves half a
    # line behind.

    def _write(self, pipe: IO[bytes]) -> None:
        while True:
            line = self._outbox.get()
            try:
                if line is None:
                    pipe.close()
                    return
                while line:
                    line = line[os.write(pipe.fileno(), line) :]
            except (OSError, ValueError):
                # The process has ended, and the other thread tells that.
                return

    def _read(self, pipe: IO[bytes]) -> None:
        problem: Optional[_errors.Error] = None
        try:
            with open(pipe.fileno(), "rb", closefd=False) as lines:
                while True:
                    line = lines.readline(LONGEST + 1)
                    if not line:
                        break
                    if len(line) > LONGEST:
                        raise ValueError(f"it has a line of more than {LONGEST} bytes")
                    self._take(json.loads(line), len(line))
        except Exception as e:
            # A recording may have taken that process over. Memory may also be short.
            why = _text.line(e) or type(e).__name__
            problem = _errors.SessionError(f"an answer cannot be understood: {why}")
            self._process.kill()
        finally:
            self._end(problem)

    def _take(self, message: Dict[str, Any], size: int) -> None:
        with self._lock:
            if "ready" in message:
                self.ready = message["ready"]
                slot = self._slots.pop(0)
                slot.done.set()
                return
            if "progress" in message:
                self.progress = message["progress"]["instructions"]
                return
            # Of what was given up, nobody takes the answer.
            asked = self._slots.get(message["id"])
            if asked is None:
                self._drop(message)
                return
            asked.bytes += size
            if asked.bytes > MOST:
                raise ValueError(f"it has more than {MOST} bytes")
            if "items" in message:
                asked.items.extend(message["items"])
                return
            if "error" in message:
                asked.error = _errors.of_kind(message["error"]["kind"], message["error"]["message"])
            else:
                asked.result = message["result"]
            del self._slots[message["id"]]
            asked.done.set()

    def _drop(self, message: Dict[str, Any]) -> None:
        """Closes the list that a question opened which was given up."""
        if message["id"] in self._abandoned and "items" not in message:
            self._abandoned.discard(message["id"])
            self._forget(message.get("result"))

    def _forget(self, result: Any) -> None:
        if isinstance(result, dict) and "list" in result:
            self.tell("close", {"list": result["list"]})

    def _end(self, error: Optional[_errors.Error]) -> None:
        """Tells all who wait that nothing more comes."""
        try:
            if error is None:
                # It may have closed its output, and not end.
                status = _programs.end(self._process, PATIENCE)
                said = self._said()
                kind = _errors.SessionError if self.ready else _errors.RecordingError
                error = kind(said or f"the process that answers has ended with status {status}")
        finally:
            with self._lock:
                self._ended = self._ended or error or _errors.SessionError("the process that answers has ended")
                slots, self._slots = list(self._slots.values()), {}
            for slot in slots:
                slot.error = self._ended
                slot.done.set()

    def _said(self) -> str:
        """What the process said for people."""
        try:
            self._messages.seek(0)
            text = self._messages.read(1 << 16).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""
        lines = [line[len("hindsight: ") :] if line.startswith("hindsight: ") else line for line in text.splitlines()]
        return _text.lines("\n".join(lines))

    def _wait(self, slot: _Slot) -> None:
        slot.done.wait()
        if slot.error is not None:
            # The same exception may be raised for several who waited.
            raise slot.error.with_traceback(None)

    def _send(self, message: Dict[str, Any]) -> None:
        self._outbox.put(json.dumps(message).encode() + b"\n")

    def _open(self) -> None:
        if os.getpid() != self._owner:
            raise _errors.SessionError("this recording was opened by another process: open it again in this one")
        if self._ended is not None:
            raise self._ended.with_traceback(None)

    def ask(self, ask: str, fields: Dict[str, Any], items: Optional[List[Any]] = None) -> "Answer":
        """Asks, and waits for the answer. An exception that comes meanwhile cancels the question.

        Args:
            ask: What is asked.
            fields: The other fields of the request.
            items: Gets what comes in pieces, also where the question then fails.
        """
        self._open()
        slot = _Slot(items)
        with self._lock:
            self._last += 1
            number = self._last
            self._slots[number] = slot
        try:
            self._send({**fields, "id": number, "ask": ask})
            # It may have ended before the slot was there.
            if self._ended is not None and not slot.done.is_set():
                raise self._ended.with_traceback(None)
            self._wait(slot)
        except BaseException:
            with self._lock:
                waits = self._slots.pop(number, None) is not None
                if waits:
                    self._abandoned.add(number)
            if waits:
                self._send({"cancel": number})
            else:
                self._forget(slot.result)
            raise
        return Answer(slot.result, slot.items)

    def tell(self, ask: str, fields: Dict[str, Any]) -> None:
        """Asks without waiting for an answer. It may be called at any time, also while objects are cleared away."""
        if os.getpid() == self._owner and self._ended is None:
            with self._lock:
                self._last += 1
                number = self._last
            self._send({**fields, "id": f"-{number}", "ask": ask})

    def cancel(self) -> None:
        """Cancels all questions that wait for their answers."""
        with self._lock:
            numbers = list(self._slots)
        for number in numbers:
            self._send({"cancel": number})

    def close(self) -> None:
        """Ends the process. Nobody waits for longer than a moment."""
        if os.getpid() != self._owner:
            return
        if self._ended is None:
            self._ended = _errors.SessionError("the recording is closed")
        self.cancel()
        self._outbox.put(None)
        _programs.end(self._process, PATIENCE)
        if self._reader is not threading.current_thread():
            self._reader.join(PATIENCE)
        if not self._reader.is_alive() and self._process.stdout is not None:
            self._process.stdout.close()
        self._messages.close()

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._process.pid


class Answer:
    """A result, and what came before it in pieces."""

    __slots__ = ("result", "items")

    def __init__(self, result: Any, items: List[Any]) -> None:
        self.result = result
        self.items = items


#: An address, or an expression that names memory.
Address = Union[int, str]
