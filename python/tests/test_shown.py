"""How objects show themselves, and that nothing of a recording commands a terminal or a browser."""

import html.parser
import subprocess
import unittest

import hindsight
from common import Case, crash
from hindsight import _text

EVIL = "<script>alert(1)</script>\x1b]0;t\x07\u202e\"'&\nFORGED"


class Tags(html.parser.HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs), attrs

    def handle_data(self, data) -> None:
        self.text += data


class Shown(Case):
    def test_objects_show_themselves(self) -> None:
        r = self.open(crash())
        crash_ = r.crash
        for thing, part in (
            (r, "killed by signal 11"),
            (crash_, "list.c:16"),
            (crash_.stack, "main"),
            (crash_.variables, "0x1234"),
            (crash_.registers, "rip"),
            (crash_.memory(16, 20), "??"),
            (r.calls("sum"), "2 calls of sum"),
            (r.events(), "events"),
            (r.output(), "10"),
            (r.writes("nodes[2].next"), "0x404060"),
            (r.events("mark"), "no events"),
        ):
            shown = Tags(thing._repr_html_())
            self.assertIn(part, shown.text)
            self.assertNotIn("object at 0x", repr(thing))
        self.assertIn("svg", Tags(r._repr_html_()).tags)
        self.assertIn("line", Tags(crash_._repr_html_()).tags)

    def test_hostile_text_is_escaped(self) -> None:
        r = hindsight.record(["/bin/sh", "-c", 'printf "%s" "$0"', EVIL], stdout=subprocess.DEVNULL)
        self.addCleanup(r.close)
        self.assertIn("<script>", r.command)
        things = [r, r.begin, r.events(), r.output(), r.output().first()[0], r.events().first()[0]]
        things.append(r.sql("SELECT text FROM output"))
        for thing in things:
            for text in (repr(thing), str(thing)):
                self.assertFalse([c for c in text if c != "\n" and _text._shown(c) != c], text)
                self.assertFalse([line for line in text.splitlines() if line.startswith("FORGED")])
            if hasattr(thing, "_repr_html_"):
                page = thing._repr_html_()
                self.assertFalse(Tags(page).tags & {"script"}, page)
                self.assertNotIn("\x1b", page)
                self.assertNotIn("\u202e", page)

    def test_lines_are_escaped(self) -> None:
        self.assertEqual(_text.line("a\x1b\n\u202eb"), "a\\u001b\\u000a\\u202eb")
        self.assertEqual(_text.cell("<a b='\"'>"), "&lt;a b=&#x27;&quot;&#x27;&gt;")
        self.assertEqual(_text.line("zwölf €"), "zwölf €")

    def test_nothing_is_invented(self) -> None:
        begin = self.open(crash()).begin
        call = {"name": "getpid", "args": ["0x1"] * 6, "arguments": [], "result": 5, "returned": "5"}
        self.assertEqual(str(hindsight.Event("syscall", begin, call)), "getpid() = 5")
        moved = {"pid": 1, "call": "write", "fd": 1, "name": "x", "way": "out", "offset": None, "length": 3, "before": 0}
        transfer = hindsight.Transfer(moment=begin, data=(97, None, 98), **moved)
        self.assertEqual(str(transfer), "a?b (1 unknown bytes)")
        with self.assertRaises(hindsight.UnknownValueError):
            bytes(transfer)


if __name__ == "__main__":
    unittest.main()
