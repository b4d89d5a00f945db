"""What tests share: recordings of small programs, made once."""

import atexit
import os
import shutil
import subprocess
import tempfile
import unittest
from functools import lru_cache
from pathlib import Path

import hindsight

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = tempfile.mkdtemp(prefix="hindsight-python-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
# Nothing of the user's is touched.
os.environ["HINDSIGHT_DIR"] = os.path.join(FOLDER, "store")
os.environ["XDG_CACHE_HOME"] = os.path.join(FOLDER, "cache")


def path(name: str) -> str:
    return os.path.join(FOLDER, name)


@lru_cache(maxsize=None)
def crash() -> str:
    """A recording of scripts/list.c, which crashes."""
    subprocess.run(["gcc", "-g", "-O0", "-no-pie", str(ROOT / "scripts/list.c"), "-o", path("list")], check=True)
    with hindsight.record([path("list")], output=path("list.hst"), stdout=subprocess.DEVNULL) as r:
        return r.path


@lru_cache(maxsize=None)
def carried() -> str:
    """A recording of a program without the C library that it calls."""
    source = str(ROOT / "crates/lab/programs/carried.c")
    subprocess.run(["gcc", "-g", "-O0", "-fno-builtin", source, "-o", path("carried")], check=True)
    options = {"output": path("carried.hst"), "stdout": subprocess.DEVNULL, "only_module": ["carried"]}
    with hindsight.record([path("carried")], **options) as r:
        return r.path


@lru_cache(maxsize=None)
def long() -> str:
    """A recording in which a search takes long."""
    work = "BEGIN { for (i = 0; i < 3000000; i++) s += i; print s }"
    with hindsight.record(["awk", work], output=path("long.hst"), stdout=subprocess.DEVNULL) as r:
        return r.path


#: What looks through all of a recording: nothing accesses that.
SLOW = {"watch": [{"address": 16, "access": "any"}], "registers": "gs_base", "back": True}


class Case(unittest.TestCase):
    def open(self, file: str) -> hindsight.Recording:
        r = hindsight.open(file)
        self.addCleanup(r.close)
        return r
