"""Recordings, moments and lists."""

import os
import signal
import subprocess
import unittest

import hindsight
from common import ROOT, Case, carried, crash, path


class Crash(Case):
    def setUp(self) -> None:
        self.r = self.open(crash())

    def test_what_there_is(self) -> None:
        r = self.r
        self.assertEqual(r.command, path("list"))
        self.assertEqual([t.signal for t in r.threads], [signal.SIGSEGV])
        self.assertEqual([p.threads for p in r.processes], [(r.threads[0].thread,)])
        self.assertEqual(r.threads[0].end_count, r.instructions)
        self.assertIn(path("list"), [m.path for m in r.modules])
        self.assertFalse(r.being_recorded)

    def test_a_moment(self) -> None:
        crash = self.r.crash
        self.assertEqual([f.function for f in crash.stack[:2]], ["sum", "main"])
        self.assertTrue(crash.stack[0].file.endswith("list.c"))
        self.assertEqual(crash.stack[0].pc, crash.pc)
        self.assertEqual(crash.variables["s"].integer, 6)
        self.assertEqual(crash.variables["n"].integer, 0x1234)
        with self.assertRaises(KeyError):
            crash.variables["nothing"]
        self.assertEqual(int(crash.evaluate("s")), 6)
        self.assertEqual(crash.registers["rax"], crash.registers.rax)
        self.assertEqual(crash.registers_of(1).rip, crash.stack[1].pc)
        self.assertEqual(len(crash.vectors["zmm0"]), 64)
        self.assertEqual(crash.code(1)[0].address, crash.pc)
        self.assertEqual(crash.location().function, "sum")
        self.assertEqual(crash.symbols("sum")[0].address, crash.location().address - crash.location().distance)
        self.assertEqual(crash.symbols("nothing"), [])
        self.assertTrue(any(m.path == path("list") and "x" in m.rights for m in crash.mappings))
        early, late = crash.time_range
        self.assertTrue(early <= crash.time <= late)

    def test_unknown_bytes_are_none(self) -> None:
        none = self.r.crash.memory(16, 4)
        self.assertEqual(list(none), [None] * 4)
        self.assertEqual(none.mask, [True] * 4)
        self.assertIsNone(none.integer())
        for ask in (bytes, hindsight.Memory.text):
            with self.assertRaises(hindsight.UnknownValueError):
                ask(none)
        value = self.r.crash.evaluate("*n")
        self.assertIsNone(value.number)
        with self.assertRaises(hindsight.UnknownValueError):
            int(value)
        node = self.r.crash.memory("nodes[2].next")
        self.assertEqual(node.integer(), 0x1234)
        self.assertEqual(node, bytes(node))
        self.assertEqual(len(node), 8)
        self.assertEqual({g[2] is not None for g in node.grounds}, {True})

    def test_values_are_carried(self) -> None:
        r = self.open(carried())
        # Here a function has called `strlen`, which is not recorded.
        (*_, call) = r.calls("stage")
        plain = call.moment.memory("text", 17)
        self.assertEqual((plain.mask, plain.carried), ([True] * 17, []))
        memory = call.moment.memory("text", 17, carried=True)
        self.assertEqual(memory, plain)
        self.assertEqual(bytes(memory.completed()), b"key=value;other=1")
        with self.assertRaises(hindsight.UnknownValueError):
            bytes(memory)
        (piece,) = memory.carried
        self.assertEqual((piece.address, piece.data), (memory.address, b"key=value;other=1"))
        self.assertEqual((piece.gaps, piece.declarations), (1, ("strlen()",)))
        self.assertIn("1 gap away: strlen()", repr(memory))
        self.assertIn("carried", memory._repr_html_())
        before = r.at(piece.position).memory(piece.address, 17)
        self.assertEqual(before, piece.data)
        self.assertIsNone(call.moment.variables_of(1)["kept"].carried)
        kept = call.moment.variables_of(1, carried=True)["kept"]
        self.assertEqual((kept.text, kept.integer), ("?", None))
        self.assertEqual((kept.carried.text, kept.carried.integer, len(kept.carried.carried)), ("42", 42, 1))
        self.assertEqual(str(kept), "volatile int kept = ?; 42 (carried)")
        # Somebody declares that the function writes everywhere.
        file = path("declared")
        with open(file, "w") as out:
            out.write("[libc.so]\nstrlen(w:0..)\n")
        other = hindsight.open(carried(), declared=[file])
        self.addCleanup(other.close)
        (*_, call) = other.calls("stage")
        self.assertEqual(call.moment.memory("text", 17, carried=True).carried, [])
        alone = hindsight.open(carried(), declared=file)
        self.addCleanup(alone.close)
        (*_, call) = alone.calls("stage")
        self.assertEqual(call.moment.memory("text", 17, carried=True).carried, [])

    def test_going_about(self) -> None:
        r = self.r
        note = r.begin.next("note")
        self.assertEqual((note.stop.reason, note.stop.number), ("breakpoint", 0))
        self.assertEqual(int(note.evaluate("text")), 0x1234)
        self.assertEqual(note.step(5).count, note.count + 5)
        self.assertEqual(note.step(5).step(5, back=True), note)
        self.assertEqual(note.step_out().step_over(back=True), note.step_out(back=True))
        self.assertEqual(r.end.step().stop.reason, "end")
        self.assertEqual([note.next_line(n).stack[0].line for n in (1, 2, 3)], [11, 24, 16])
        self.assertEqual(note.next_line().next_line(back=True), note)
        before = r.begin.next("list.c:23")
        self.assertEqual(before.step_line(), note)
        self.assertEqual(before.next_line().stack[0].line, 24)
        self.assertIsNone(note.next("note"))
        self.assertEqual(note.next("sum").previous("note"), note)
        hits = list(r.begin.hits("sum"))
        self.assertEqual(list(reversed(hits)), list(r.end.hits("sum", back=True)))
        self.assertTrue(r.begin < hits[0] < note < hits[1] < r.crash)
        self.assertEqual(sorted({r.crash, note, hits[0], note}), [hits[0], note, r.crash])
        self.assertEqual(r.at(note), note)
        self.assertEqual(r.at(note.position), note)
        other = self.open(crash())
        for ask in (lambda: other.at(note), lambda: other.events(until=note)):
            with self.assertRaisesRegex(hindsight.RequestError, "another recording"):
                ask()
        call = r.begin.run(syscalls="write")
        self.assertEqual((call.stop.reason, call.stop.details["name"]), ("syscall", "write"))
        self.assertEqual(r.begin.run(signals=True).stop.reason, "signal")
        self.assertEqual(r.begin.run(f"list.c:{16}").stack[0].line, 16)

    def test_who_wrote(self) -> None:
        r = self.r
        last = r.crash.last_write("nodes[2].next")
        self.assertEqual(last.moment.stack[0].function, "note")
        self.assertEqual(r.crash.run(watch="nodes[2].next", back=True), last.moment)
        after = r.begin.run(watch=[{"address": "nodes[2].next", "changes": True}])
        self.assertEqual(after, last.moment.step())
        writes = list(r.writes("nodes[2].next"))
        self.assertEqual([w.moment for w in writes], [last.moment])
        self.assertEqual(bytes(writes[0].data), (0x1234).to_bytes(8, "little"))
        self.assertEqual(r.at(last.moment).first_use("nodes[2].next").pc, last.pc)
        self.assertIsNone(r.crash.last_write(16))
        with self.assertRaises(TypeError):
            len(r.writes("nodes[2].next"))
        self.assertIsNone(r.writes("nodes[2].next").total)

    def test_lists_stream(self) -> None:
        r = self.r
        calls = r.calls("sum")
        self.assertEqual(calls.total, 2)
        # Other questions are asked meanwhile, and other lists read.
        seen = []
        for call in calls:
            seen.append((call.value, call.moment.location().function, len(r.calls("note", arguments=False).first(1))))
        self.assertEqual(seen, [(10, "sum", 1), (None, "sum", 1)])
        self.assertIsNone(list(calls)[1].returned)
        (note,) = r.calls("note")
        self.assertEqual([(a.name, a.value) for a in note.arguments][1], ("text", 0x1234))
        self.assertEqual(str(note).split(", ")[1], "text=4660)")
        events = r.events()
        self.assertEqual(len(list(events)), events.total)
        # What is not read to its end is closed: otherwise there would be too many.
        for _ in range(100):
            next(iter(events))
        written = [e for e in r.events("syscall", arguments=True, time=True) if e.name == "write"]
        self.assertIn('"10\\n"', str(written[0]))
        self.assertGreater(written[0].time["seconds"], 0)
        self.assertEqual(events.first(0), [])
        self.assertEqual(events.first(2), list(events)[:2])
        with self.assertRaises(AttributeError):
            written[0].nothing
        self.assertEqual(b"".join(map(bytes, r.output())), b"10\n")
        self.assertEqual(r.output().first()[0].text(), "10\n")
        self.assertFalse(r.events("mark"))

    def test_state_points(self) -> None:
        source, out = str(ROOT / "crates/lab/programs/states.c"), path("states.out")
        subprocess.run(["gcc", "-g", "-O1", "-pthread", source, "-o", path("states")], check=True)
        options = {"output": path("states.hst"), "stdout": subprocess.DEVNULL}
        with hindsight.record([path("states"), out], **options) as r:
            states = list(r.states())
            self.assertEqual([s.name for s in states], ["filled", "changed", "changed", "changed"])
            self.assertEqual([s.number for s in states], [1, 2, 3, 4])
            self.assertEqual([s.is_change for s in states], [False, True, True, True])
            self.assertEqual(states[2].moment, r.at("state:changed:2"))
            self.assertEqual(states[2].moment.count, r.at("mark:changed:2").count + 1)
            self.assertIn("filled", str(states[0]))
            with self.assertRaises(hindsight.PlaceError):
                list(r.states(image=9))
        self.assertFalse(self.r.states())

    def test_errors_have_classes(self) -> None:
        r = self.r
        for error, ask in (
            (hindsight.PlaceError, lambda: r.at("nowhere")),
            (hindsight.PlaceError, lambda: r.at("crash", thread=99)),
            (hindsight.UnknownNameError, lambda: list(r.calls("summ"))),
            (hindsight.UnknownNameError, lambda: r.begin.run("summ")),
            (hindsight.ExpressionError, lambda: r.crash.evaluate("nodes[2].nxt")),
            (hindsight.RequestError, lambda: r.crash.memory(0, 0)),
            (hindsight.UnsupportedError, lambda: r.crash.run(watch=[{"address": 16, "changes": True}])),
        ):
            with self.assertRaises(error) as e:
                ask()
            self.assertTrue(str(e.exception))
            self.assertIsInstance(e.exception, hindsight.Error)
        with self.assertRaisesRegex(hindsight.UnknownNameError, "did you mean.*sum|sum"):
            r.begin.run("summ")
        with self.assertRaisesRegex(hindsight.RecordingError, "(?i)no such file"):
            hindsight.open(path("none.hst"))
        with open(path("text.hst"), "w") as f:
            f.write("no recording")
        with self.assertRaises(hindsight.RecordingError):
            hindsight.open(path("text.hst"))


class Options(Case):
    def test_the_interpreter_answers_the_same(self) -> None:
        native = self.open(crash()).crash
        r = hindsight.open(crash(), processor="interpreter")
        self.addCleanup(r.close)
        self.assertEqual(r.crash.stack, native.stack)
        self.assertEqual(r.crash.registers.rip, native.registers.rip)
        self.assertEqual(r.crash.last_write("nodes[2].next").pc, native.last_write("nodes[2].next").pc)

    def test_memory_has_a_limit(self) -> None:
        with self.assertRaisesRegex(hindsight.Error, "more than 1024.0 KiB of memory"):
            hindsight.open(crash(), max_memory="1M").crash.stack


class Recorded(Case):
    def test_programs_are_recorded(self) -> None:
        out = path("out")
        with open(out, "w") as f:
            r = hindsight.record(["/bin/sh", "-c", "echo $WHO; exit 3"], env={**os.environ, "WHO": "me"}, stdout=f)
        self.addCleanup(r.close)
        with open(out) as f:
            self.assertEqual(f.read(), "me\n")
        self.assertTrue(r.path.startswith(os.environ["HINDSIGHT_DIR"]))
        self.assertEqual(r.info["ending"], {"exit": 3})
        self.assertEqual(r.threads[0].status, 3)
        self.assertIsNone(r.crash)
        with self.assertRaisesRegex(hindsight.RecordError, "No such file"):
            hindsight.record(["/no/such/program"], stderr=subprocess.DEVNULL)
        with self.assertRaisesRegex(hindsight.RecordError, "not kept"):
            hindsight.record(["/bin/true"], keep_on="failure")
        with self.assertRaises(hindsight.RecordError):
            hindsight.record(["/bin/true"], nonsense=7, stderr=subprocess.DEVNULL)

    def test_a_name_may_be_no_text(self) -> None:
        file = os.fsdecode(os.fsencode(path("")) + b"\xff.hst")
        with hindsight.record(["/bin/true"], output=file) as r:
            self.assertEqual(r.path, file)
            self.assertEqual(r.info["ending"], {"exit": 0})
        self.assertTrue(os.path.exists(file))

    def test_handlers_are_entered(self) -> None:
        source = ROOT / "crates/lab/programs/handlers.c"
        subprocess.run(["gcc", "-g", "-w", "-O0", "-pthread", str(source), "-o", path("handlers"), "-lm"], check=True)
        r = hindsight.record([path("handlers")], output=path("handlers.hst"), stdout=subprocess.DEVNULL)
        self.addCleanup(r.close)
        for event in r.events("exception").first(5):
            inside = event.moment.step()
            first = inside.symbols(inside.location().function)[0].address
            entry = inside.run(first, back=True)
            self.assertTrue(entry.in_handler_entry)
            self.assertEqual((entry.count, entry.position), (event.moment.count, event.moment.position))
            self.assertTrue(event.moment < entry < inside)
            # Each is found again after a question about the other one.
            for _ in range(2):
                self.assertEqual(entry.pc, first)
                self.assertNotEqual(event.moment.pc, first)
                self.assertEqual(r.at(entry), entry)
                self.assertEqual(r.at(event.moment), event.moment)
        for arguments in (False, True):
            for call in r.calls("repair", arguments=arguments).first(5):
                self.assertTrue(call.handler)
                self.assertTrue(call.moment.in_handler_entry)
                self.assertEqual(call.moment.pc, call.address)
                self.assertEqual(call.moment.stack[0].function, "repair")


if __name__ == "__main__":
    unittest.main()
