"""Recording a program."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import Any, IO, List, Mapping, Optional, Sequence, Union

from . import _programs, _text
from ._errors import RecordError
from ._recording import Recording

#: Where a standard stream goes, as for :class:`subprocess.Popen`.
Stream = Union[int, IO[Any], None]
#: How long an interrupted recording may take to be written, in seconds.
PATIENCE = 10.0


def record(
    command: Sequence[Union[str, "os.PathLike[str]"]],
    *,
    output: Union[str, "os.PathLike[str]", None] = None,
    cwd: Union[str, "os.PathLike[str]", None] = None,
    env: Optional[Mapping[str, str]] = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    quiet: bool = True,
    **options: Any,
) -> Recording:
    """Runs a program to its end, records it, and opens the recording.

    How it ended is in :attr:`Recording.info` (``ending``): a program that fails is recorded like any other.

    Args:
        command: The program and its arguments.
        output: The file for the recording. By default it goes to the store, where recordings of a program replace each other.
        cwd: The folder in which the program runs.
        env: Its whole environment. ``hindsight`` gets it, too, and finds its store by ``HINDSIGHT_DIR``, ``XDG_DATA_HOME`` or
            ``HOME``.
        stdin, stdout, stderr: Its standard streams, as for :class:`subprocess.Popen`.
        quiet: No line about the recording at the end.
        options: Further options of ``hindsight record``: ``timeout="10s"``, ``chaos=7``, ``retry="until-failure"``,
            ``only_module=["libfoo.so"]``, ``no_cache=True``.

    Raises:
        RecordError: The program could not be run, or its recording was not kept.
    """
    words = [_programs.find("hindsight"), "record"]
    words += ["--quiet"] if quiet else []
    words += [] if output is None else ["--output", os.path.abspath(os.fspath(output))]
    words += _options(options)
    with tempfile.TemporaryDirectory() as folder:
        told = os.path.join(folder, "result")
        words += ["--result", told, "--", *(os.fspath(word) for word in command)]
        process = subprocess.Popen(words, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
        # Ctrl-C goes to the program, too. What it was recorded until then is kept; then the exception goes on.
        try:
            status = process.wait()
        except BaseException:
            # It writes to the folder, which goes.
            _programs.end(process, PATIENCE)
            raise
        try:
            with open(told, encoding="utf-8") as file:
                result = json.load(file)
        except (OSError, ValueError):
            raise RecordError(f"nothing is known of the run: hindsight record ended with status {status}") from None
    if "error" in result:
        raise RecordError(_text.lines(result["error"]))
    if not result["kept"]:
        raise RecordError(f"the recording is not kept: {_text.line(result['ended'])}")
    # A name that is no text is not told.
    kept = result["file"] if result["file"] is not None else output
    if kept is None:
        raise RecordError("the recording is kept, but the name of its file is no text")
    return Recording(os.path.abspath(os.fspath(kept)))


def _options(options: Mapping[str, Any]) -> List[str]:
    words: List[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is None or value is False:
            continue
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={one}" for one in value]
        else:
            words.append(f"{option}={value}")
    return words
