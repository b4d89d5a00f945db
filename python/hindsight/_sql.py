"""Questions in SQL.

Another process answers them, ``hindsight-sql``, which is confined as well. It sends rows as a stream in Arrow's format, which pyarrow reads
as it is. Without pyarrow, rows come as JSON.
"""

from __future__ import annotations

import codecs
import json
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _programs, _text
from ._errors import SqlError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: How much is read at a time, in bytes.
PIECE = 1 << 16
#: How long the process may take to end after its answer, in seconds.
PATIENCE = 5.0
#: Rows that are shown in a notebook.
SHOWN = 20


class Row(Tuple[Any, ...]):
    """A row: a tuple whose values also have the names of their columns, as in ``row["name"]``."""

    _names: Tuple[str, ...]

    @classmethod
    def of(cls, names: Tuple[str, ...], values: Sequence[Any]) -> "Row":
        row = cls(values)
        row._names = names
        return row

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(self._column(at) if isinstance(at, str) else at)

    def _column(self, name: str) -> int:
        found = self._names.count(name)
        if found != 1:
            raise KeyError(f"{found or 'no'} columns are called {name}")
        return self._names.index(name)

    def keys(self) -> List[str]:
        """The names of the columns."""
        return list(self._names)

    def asdict(self) -> Dict[str, Any]:
        """The values by the names of their columns.

        Raises:
            KeyError: Several columns have the same name.
        """
        return {name: self[name] for name in self._names}

    def __repr__(self) -> str:
        return _text.line("Row(" + ", ".join(f"{name}={value!r}" for name, value in zip(self._names, self)) + ")")


class Rows:
    """The rows of a question. Each way of taking them asks: nothing is kept here.

    What is not known is ``None`` (NULL), and never zero.
    """

    def __init__(self, recordings: Sequence[str], question: str, options: Sequence[str]) -> None:
        self._recordings = list(recordings)
        self._options = list(options)
        #: What is asked.
        self.question = question

    @contextmanager
    def _asked(self, form: str) -> Iterator[IO[bytes]]:
        """A pipe with the answer. An error is raised at its end."""
        command = [_programs.find("hindsight-sql"), "sql", form, *self._options, "--", *self._recordings]
        with tempfile.TemporaryFile() as messages, tempfile.TemporaryFile() as question:
            question.write(self.question.encode())
            question.seek(0)
            process = subprocess.Popen(command, stdin=question, stdout=subprocess.PIPE, stderr=messages, start_new_session=True)
            assert process.stdout is not None
            taken = False
            problem: Optional[Exception] = None
            try:
                yield process.stdout
                taken = True
            except GeneratorExit:
                raise
            except Exception as e:
                # If the stream is broken, what the process says is the reason.
                problem = e
            finally:
                process.stdout.close()
                if not taken and problem is None:
                    # Ctrl-C, or nobody wants more.
                    process.terminate()
                status = _programs.end(process, PATIENCE)
            messages.seek(0)
            said = _text.lines(messages.read(1 << 16).decode("utf-8", "replace").strip())
            # Nobody reads on after a problem here: that also ends it.
            killed = status < 0 and status not in (-signal.SIGPIPE, -signal.SIGTERM)
            if status != 0 and (taken or said or killed):
                said = said[len("hindsight: ") :] if said.startswith("hindsight: ") else said
                raise SqlError(said or f"the process that answers has ended with status {status}") from problem
            if problem is not None:
                raise problem

    # Rows without any other package.

    def __iter__(self) -> Iterator[Row]:
        with self._asked("--json") as pipe:
            names: Tuple[str, ...] = ()
            for row in _objects(pipe):
                # Two columns may have the same name.
                here = tuple(name for name, _ in row)
                names = names if names == here else here
                yield Row.of(names, [_plain(value) for _, value in row])

    def fetchall(self) -> List[Row]:
        """All rows."""
        return list(self)

    def fetchone(self) -> Optional[Row]:
        """The first row. ``None``: there is none."""
        return next(iter(self), None)

    # Rows for other packages.

    def to_arrow(self) -> "pyarrow.Table":
        """All rows as a table of pyarrow, which reads them from the pipe as they are."""
        import pyarrow

        with self._asked("--arrow") as pipe, pyarrow.ipc.open_stream(pipe) as reader:
            table = reader.read_all()
        # A recording may have taken over the process that sent it.
        table.validate(full=True)
        return table

    def batches(self) -> "Iterator[pyarrow.RecordBatch]":
        """Rows as batches of pyarrow, as they come."""
        import pyarrow

        with self._asked("--arrow") as pipe, pyarrow.ipc.open_stream(pipe) as reader:
            for batch in reader:
                batch.validate(full=True)
                yield batch

    def to_pandas(self) -> "pandas.DataFrame":
        """All rows as a frame of pandas. It keeps Arrow's types: numbers beside unknown ones stay exact."""
        import pandas

        return self.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)

    def to_polars(self) -> "polars.DataFrame":
        """All rows as a frame of polars."""
        import polars

        return polars.DataFrame(self.to_arrow())

    # Showing itself.

    def __repr__(self) -> str:
        return f"<Rows of {_text.line(' '.join(self.question.split()))}>"

    def _repr_html_(self) -> str:
        rows: List[Row] = []
        for row in self:
            if len(rows) == SHOWN:
                return _text.table(rows[0].keys(), rows, more=f"the first {SHOWN} rows; iterate for all")
            rows.append(row)
        return _text.table(rows[0].keys(), rows) if rows else "<div>no rows</div>"


class _Pairs(List[Tuple[str, Any]]):
    """An object in JSON."""


def _plain(value: Any) -> Any:
    """A value within a row."""
    if isinstance(value, _Pairs):
        return {name: _plain(one) for name, one in value}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _objects(pipe: IO[bytes]) -> Iterator[_Pairs]:
    """The objects of a list in JSON, one by one."""
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs)
    text = codecs.getincrementaldecoder("utf-8")()
    rest = ""
    lists = 0
    while True:
        # If a row has not come whole, as much again is read: it is not begun too often.
        piece = pipe.read(max(PIECE, len(rest)))
        rest += text.decode(piece, final=not piece)
        at = 0
        while True:
            begin = rest.find("{", at)
            # Between objects there are no others.
            lists += rest.count("[", at, begin if begin >= 0 else len(rest))
            if lists > 1:
                raise SqlError("rows are those of one statement: ask the others by themselves")
            if begin < 0:
                at = len(rest)
                break
            try:
                row, at = decoder.raw_decode(rest, begin)
            except ValueError:
                # The rest of it has not come yet.
                at = begin
                break
            yield row
        rest = rest[at:]
        if not piece:
            return
