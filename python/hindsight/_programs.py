"""Where the executables are that do the work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from ._errors import Error


def find(name: str) -> str:
    """The path of ``hindsight`` or ``hindsight-sql``.

    The folder in ``$HINDSIGHT_BIN`` counts first, then the executables that the package carries, then ``$PATH``.
    """
    told = os.environ.get("HINDSIGHT_BIN")
    folders = [Path(told)] if told else [Path(__file__).parent / "bin"]
    for folder in folders:
        path = folder / name
        if os.access(path, os.X_OK):
            return str(path)
    found = None if told else shutil.which(name)
    if found:
        return found
    where = f"in {told} ($HINDSIGHT_BIN)" if told else "in this package, or in $PATH"
    raise Error(f"there is no executable {name} {where}")


def main() -> NoReturn:
    """The command ``hindsight`` of an installed package."""
    try:
        program = find("hindsight")
    except Error as e:
        sys.exit(str(e))
    os.execv(program, [program, *sys.argv[1:]])


def end(process: "subprocess.Popen[bytes]", patience: float) -> int:
    """Waits for a process, and ends it if it does not end by itself. Its status.

    Args:
        process: The process.
        patience: How long it may take, in seconds; as long again when it was asked to end.
    """
    try:
        for act in (None, process.terminate):
            if act is not None:
                act()
            try:
                return process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        return process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
