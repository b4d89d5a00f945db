"""What can go wrong."""

from __future__ import annotations

from . import _text


class Error(Exception):
    """Something went wrong. ``str(error)`` is a message for people."""

    kind: str = "error"


class RequestError(Error, ValueError):
    """A question does not fit: a length of zero, a list of something else."""

    kind = "request"


class PlaceError(Error, LookupError):
    """The recording has no such place, thread or program image."""

    kind = "place"


class UnknownNameError(Error, LookupError):
    """There is no such function, line, system call, signal or register."""

    kind = "name"


class ExpressionError(Error, ValueError):
    """An expression has no value at that place."""

    kind = "expression"


class UnsupportedError(Error):
    """This recording does not tell that."""

    kind = "unsupported"


class RecordingError(Error):
    """The recording cannot be opened, is damaged, or cannot be replayed."""

    kind = "recording"


class CancelledError(Error):
    """The question was cancelled from another thread (:meth:`hindsight.Recording.cancel`)."""

    kind = "cancelled"


class BusyError(Error):
    """Too many questions wait, or too many lists are read at the same time."""

    kind = "busy"


class SessionError(Error):
    """The process that answers has ended, or the recording is closed."""

    kind = "session"


class RecordError(Error):
    """A program could not be recorded, or its recording was not kept."""

    kind = "record"


class SqlError(Error):
    """A question in SQL has a mistake, or no answer."""

    kind = "sql"


class UnknownValueError(Error, ValueError):
    """A value is asked for of which the recording does not know all bytes."""

    kind = "unknown"


_KINDS = {
    c.kind: c
    for c in (
        RequestError,
        PlaceError,
        UnknownNameError,
        ExpressionError,
        UnsupportedError,
        RecordingError,
        CancelledError,
        BusyError,
        SessionError,
    )
}


def of_kind(kind: str, message: str) -> Error:
    """The exception for an error that ``hindsight serve`` tells."""
    error = _KINDS.get(kind, Error)(_text.lines(message))
    error.kind = kind
    return error
