"""Text of a recording as it may be shown: it may say anything, and must not command a terminal or a browser."""

from __future__ import annotations

import html
import unicodedata
from typing import Any, Iterable, List, Optional, Sequence

#: Control characters, those that change the direction of text, invisible ones, and those without a meaning.
_HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}
#: The most characters of a cell in a table.
_CELL = 200


def line(text: Any) -> str:
    """The text in one line. What a terminal might obey is escaped."""
    return "".join(_shown(c) for c in str(text))


def lines(text: Any) -> str:
    """The same for text in several lines, which stay."""
    return "\n".join(line(one) for one in str(text).split("\n"))


def _shown(c: str) -> str:
    if unicodedata.category(c) not in _HIDDEN:
        return c
    code = ord(c)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cell(text: Any) -> str:
    """The same for HTML."""
    shown = line(text)
    if len(shown) > _CELL:
        shown = shown[:_CELL] + "…"
    return html.escape(shown, quote=True)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", more: Optional[str] = None) -> str:
    """A table in HTML. ``None`` is shown as ``?``."""
    out: List[str] = ['<table class="hindsight">']
    if caption:
        out.append(f'<caption style="text-align:left">{cell(caption)}</caption>')
    out.append("<thead><tr>" + "".join(f"<th>{cell(h)}</th>" for h in head) + "</tr></thead><tbody>")
    for row in rows:
        cells = ("?" if value is None else value for value in row)
        out.append(
            "<tr>" + "".join(f'<td style="text-align:left"><code>{cell(value)}</code></td>' for value in cells) + "</tr>"
        )
    out.append("</tbody></table>")
    if more:
        out.append(f"<div>{cell(more)}</div>")
    return "".join(out)


def columns(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as plain text, one below the other."""
    if not rows:
        return ""
    shown = [["?" if value is None else line(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    lines = ("  ".join(value.ljust(width) for value, width in zip(row, widths)).rstrip() for row in shown)
    return "\n".join(lines)
