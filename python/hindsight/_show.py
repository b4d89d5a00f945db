"""How objects show themselves in a notebook. All text of a recording is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

from ._errors import Error
from ._text import cell, table

if TYPE_CHECKING:
    from ._moment import Moment
    from ._recording import Recording

#: Size of the timeline, in pixels.
WIDTH, ROW, LABEL = 640, 18, 160
#: The most threads in the timeline.
MOST = 20
#: Colours that do on light and on dark ground.
BAR, MARK = "#4c8bf5", "#d93025"


def _fraction(position: str, ends: List[str]) -> float:
    """Where a position lies between two others. Positions of one segment are compared by their instructions."""

    def key(text: str) -> List[int]:
        return [int(part, 16) for part in text.split(":")]

    at, first, last = key(position), key(ends[0]), key(ends[1])
    i = 1 if first[0] == last[0] else 0
    span = last[i] - first[i]
    return 0.0 if span <= 0 else min(1.0, max(0.0, (at[i] - first[i]) / span))


def timeline(recording: "Recording", mark: str = "") -> str:
    """The threads of a recording in the order of time, as a picture. ``mark`` is a position in it."""
    threads = recording.threads
    if not threads:
        return ""
    ends = [min((t.begin for t in threads), key=_order), max((t.end for t in threads), key=_order)]
    shown = threads[:MOST]
    height = ROW * len(shown) + 4
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 8}" height="{height}" role="img" '
        'font-family="monospace" font-size="11">'
    ]
    for i, t in enumerate(shown):
        begin, end = (_fraction(p, ends) for p in (t.begin, t.end))
        left, width = LABEL + begin * WIDTH, max(2.0, (end - begin) * WIDTH)
        y = ROW * i + 2
        out.append(
            f"<g><title>{cell(f'thread {t.thread}: {t.ending}')}</title>"
            f'<text x="0" y="{y + 11}" fill="currentColor">{cell(f"{t.thread} {t.name}"[:22])}</text>'
            f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 6}" fill="{BAR}"/></g>'
        )
        if t.signal is not None:
            out.append(f'<circle cx="{left + width:.1f}" cy="{y + (ROW - 6) / 2}" r="4" fill="{MARK}"/>')
    if mark:
        x = LABEL + _fraction(mark, ends) * WIDTH
        out.append(f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height}" stroke="{MARK}" stroke-width="2"/>')
    out.append("</svg>")
    if len(threads) > MOST:
        out.append(f"<div>{len(threads) - MOST} more threads</div>")
    return "".join(out)


def _order(position: str) -> List[int]:
    return [int(part, 16) for part in position.split(":")]


def recording(r: "Recording") -> str:
    """A recording: what ran, how it ended, its threads in time."""
    info = r.info
    rows = [
        ("file", r.path),
        ("command", info.get("command")),
        ("instructions", f"{r.instructions:,}".replace(",", " ")),
        *((f"thread {t.thread}", f"{t.name}: {t.ending}") for t in r.threads[:MOST]),
    ]
    if r.being_recorded:
        rows.append(("state", "still being written when it was opened"))
    return table(("recording", ""), rows) + timeline(r)


def moment(m: "Moment") -> str:
    """A moment: where in the recording, the source line, the call stack, variables."""
    caption = f"{m.position}: thread {m.thread}, {m.count} instructions"
    if m.stop is not None:
        caption += f"; {m.stop}"
    out = [f"<div><code>{cell(caption)}</code></div>", timeline(m.recording, m.position)]
    for part in ("stack", "variables"):
        try:
            shown = getattr(m, part)
            if shown:
                out.append(shown._repr_html_())
        except Error as e:
            out.append(f"<div>{cell(f'{part}: {e}')}</div>")
    return "".join(out)
