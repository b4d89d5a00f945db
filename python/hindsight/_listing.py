"""Long answers, which come page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Iterator, List, Optional, TypeVar

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

    def _open(self) -> Dict[str, Any]:
        opened: Dict[str, Any] = self._recording._ask(self._ask, **self._fields)
        self.missing = [name for name in ("gaps", "hidden") if opened.get(name)]
        return opened

    def __iter__(self) -> Iterator[T]:
        number = self._open()["list"]
        open_ = True
        count = FIRST
        try:
            while open_:
                answer = self._recording._answer("next", list=number, count=count)
                open_ = not answer.result["done"]
                for item in answer.items:
                    yield self._make(item)
                count = LATER
        finally:
            if open_:
                # Whoever does not take all of it leaves it: nobody waits here.
                self._recording._channel.tell("close", {"list": number})

    def __len__(self) -> int:
        """How many elements there are.

        Raises:
            TypeError: Nobody knows before the end.
        """
        total = self.total
        if total is None:
            raise TypeError(f"how many {self._what} there are is known at their end only: use len(list(…))")
        return total

    @property
    def total(self) -> Optional[int]:
        """How many elements there are. ``None``: that is not known before the end. Long output has more pieces than that."""
        opened = self._open()
        self._recording._channel.tell("close", {"list": opened["list"]})
        total: Optional[int] = opened["total"]
        return total

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def first(self, count: int = SHOWN) -> List[T]:
        """The first elements."""
        out: List[T] = []
        for one in self:
            out.append(one)
            if len(out) >= count:
                break
        return out

    def __repr__(self) -> str:
        return f"<{self._what} of {self._recording!r}>"

    def _repr_html_(self) -> str:
        return listing(self.first(), self.total, self._what)
