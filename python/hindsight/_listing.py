"""Long answers, which come page by page."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, Dict, Generator, Generic, List, Optional, TypeVar

from ._errors import Error
from ._values import listing

if TYPE_CHECKING:
    from ._recording import Recording

T = TypeVar("T")

#: Elements of the first page, and of later ones.
FIRST, LATER = 50, 1000
#: Elements that are shown in a notebook.
SHOWN = 20


class Listing(Generic[T]):
    """A list that is not in memory. Iterating takes page by page; iterating again begins again.

    While one iterates, other questions can be asked, and other lists read.
    """

    def __init__(
        self, recording: "Recording", what: str, ask: str, fields: Dict[str, Any], make: Callable[[Dict[str, Any]], T]
    ) -> None:
        self._recording = recording
        self._what = what
        self._ask = ask
        self._fields = fields
        self._make = make
        #: After a list was opened: what may be missing (``gaps``: parts are not recorded, ``hidden``: ways not recorded).
        self.missing: List[str] = []
        self._total: Optional[int] = None

    def _open(self) -> Dict[str, Any]:
        opened: Dict[str, Any] = self._recording._ask(self._ask, **self._fields)
        self.missing = [name for name in ("gaps", "hidden") if opened.get(name)]
        self._total = opened["total"]
        return opened

    def __iter__(self) -> Generator[T, None, None]:
        number = self._open()["list"]
        open_ = True
        count = FIRST
        try:
            while open_:
                items: List[Dict[str, Any]] = []
                failed: Optional[Error] = None
                try:
                    answer = self._recording._channel.ask("next", {"list": number, "count": count}, items)
                    open_ = not answer.result["done"]
                except Error as e:
                    # What came before it is not lost.
                    failed = e
                for item in items:
                    yield self._make(item)
                if failed is not None:
                    raise failed
                count = LATER
        finally:
            if open_:
                # Whoever does not take all of it leaves it: nobody waits here.
                self._recording._channel.tell("close", {"list": number})

    @property
    def total(self) -> Optional[int]:
        """How many elements there are. ``None``: that is not known before the end. Of output it counts calls, and what is long comes in
        several pieces."""
        self._recording._channel.tell("close", {"list": self._open()["list"]})
        return self._total

    def __bool__(self) -> bool:
        return bool(self.first(1))

    def first(self, count: int = SHOWN) -> List[T]:
        """The first elements, at most ``count``."""
        elements = iter(self)
        try:
            return list(islice(elements, count))
        finally:
            elements.close()

    def __repr__(self) -> str:
        return f"<{self._what} of {self._recording!r}>"

    def _repr_html_(self) -> str:
        rows = self.first(SHOWN + 1)
        more = len(rows) > SHOWN
        # Of output, the total does not count elements.
        total = self._total if self._ask != "output" else None
        return listing(rows[:SHOWN], more, total, self._what, self.missing)
