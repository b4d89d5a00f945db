"""Hindsight: record a program, and ask the recording anything.

>>> import hindsight
>>> r = hindsight.record(["./prog", "args"])     # doctest: +SKIP
>>> crash = r.crash                              # doctest: +SKIP
>>> crash.stack                                  # doctest: +SKIP
>>> crash.last_write("p->next").moment.stack     # doctest: +SKIP

A recording may come from a stranger. So nothing of it is read or executed in this process: confined processes do that
(``hindsight serve``, ``hindsight-sql``), which this package starts and asks.
"""

from __future__ import annotations

import os
from typing import Optional, Sequence, Union

from ._errors import (
    BusyError,
    CancelledError,
    Error,
    ExpressionError,
    PlaceError,
    RecordError,
    RecordingError,
    RequestError,
    SessionError,
    SqlError,
    UnknownNameError,
    UnknownValueError,
    UnsupportedError,
)
from ._listing import Listing
from ._memory import Candidate, Carried, Completed, Memory
from ._moment import Moment
from ._record import record
from ._recording import Recording
from ._sql import Row, Rows
from ._values import (
    Access,
    Argument,
    Call,
    Event,
    Frame,
    Instruction,
    Location,
    MemoryMapping,
    Module,
    Process,
    Registers,
    Stack,
    StatePoint,
    Stop,
    Symbol,
    Thread,
    Transfer,
    Value,
    Variable,
    Variables,
)

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Argument",
    "BusyError",
    "Call",
    "CancelledError",
    "Candidate",
    "Carried",
    "Completed",
    "Error",
    "Event",
    "ExpressionError",
    "Frame",
    "Instruction",
    "Listing",
    "Location",
    "Memory",
    "MemoryMapping",
    "Module",
    "Moment",
    "PlaceError",
    "Process",
    "RecordError",
    "Recording",
    "RecordingError",
    "Registers",
    "RequestError",
    "Row",
    "Rows",
    "SessionError",
    "SqlError",
    "Stack",
    "StatePoint",
    "Stop",
    "Symbol",
    "Thread",
    "Transfer",
    "UnknownNameError",
    "UnknownValueError",
    "UnsupportedError",
    "Value",
    "Variable",
    "Variables",
    "open",
    "record",
    "sql",
]


def open(
    path: Union[str, "os.PathLike[str]"],
    *,
    max_memory: Optional[str] = None,
    processor: Optional[str] = None,
    declared: Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]] = (),
) -> Recording:
    """Opens a recording: a file, or a name in the store.

    Args:
        path: The file, or the name.
        max_memory: The most memory that questions may take, such as ``"4G"``. By default, what the recording may need.
        processor: What executes a recording's instructions: ``"native"`` or ``"interpreter"``.
        declared: A file, or several, that declare what functions write that are not recorded (docs/declared-functions.md).

    Raises:
        RecordingError: There is no such recording, or it cannot be read.
    """
    return Recording(path, max_memory=max_memory, processor=processor, declared=declared)


def sql(recordings: Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]], question: str) -> Rows:
    """Asks several recordings at once, in SQL. The column ``recording`` says which one a row is of.

    Args:
        recordings: Files, names in the store, or patterns such as ``"runs/*.hst"``.
        question: A statement; docs/sql.md describes the tables.
    """
    if isinstance(recordings, (str, os.PathLike)):
        recordings = [recordings]
    return Rows([os.fspath(name) for name in recordings], question, [])
