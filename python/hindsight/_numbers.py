"""Numbers and bytes, as answers have them: as text."""

from __future__ import annotations

from typing import Optional, Tuple


def number(text: Optional[str]) -> Optional[int]:
    """A number that came as hexadecimal text."""
    return None if text is None else int(text, 16)


def must(text: str) -> int:
    """The same for one that is always there."""
    return int(text, 16)


def known(text: str) -> Tuple[Optional[int], ...]:
    """Bytes that came as text, each ``None`` if it is not known."""
    return tuple(None if b == "??" else int(b, 16) for b in text.split())
