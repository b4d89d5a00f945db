"""Where the executables are that do the work."""

from __future__ import annotations

import os
import shutil
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
