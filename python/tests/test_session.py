"""Processes: they can be interrupted, and none is left behind."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import unittest.mock
from typing import Sequence

import hindsight
from hindsight._listing import Listing
from common import SLOW, Case, crash, long, path


def children() -> set:
    """The processes that this one has started and that have not ended."""
    with open(f"/proc/self/task/{os.getpid()}/children") as f:
        found = set(map(int, f.read().split()))
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as f:
            found |= set(map(int, f.read().split()))
    return found


#: Runs long in a function with variables.
WORK = """
int fill(int *all, int n) {
    volatile int sum = 0;
    for (int i = 0; i < 3000000; i++) { all[i % n] += i; sum += i; }
    return sum;
}
int main(void) { int all[100] = {1}; return fill(all, 100) == 7; }
"""


class Sessions(Case):
    def test_no_process_is_left(self) -> None:
        before = children()
        with hindsight.open(crash()) as r:
            pid = r._channel.pid
            self.assertIn(pid, children())
            r.crash
        self.assertEqual(children(), before)
        with self.assertRaisesRegex(hindsight.SessionError, "closed"):
            r.crash
        r.close()
        r = hindsight.open(crash())
        del r
        gc.collect()
        self.assertEqual(children(), before)
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            hindsight.open(crash()).close()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), descriptors)
        self.assertLess(threading.active_count(), 6)

    def test_a_process_that_dies_is_an_error(self) -> None:
        r = self.open(long())
        killer = threading.Timer(0.3, os.kill, [r._channel.pid, signal.SIGKILL])
        killer.start()
        with self.assertRaises(hindsight.SessionError):
            while True:
                r.end.run(**SLOW)
        with self.assertRaises(hindsight.SessionError):
            r.begin

    def play(self, answers: Sequence[str], raw: bool = False) -> hindsight.Recording:
        """A session with a process that gives these answers, one for each question; or else obeys these words."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        ready = '{"ready":{"protocol":1,"file":"x","being_recorded":false}}'
        program = "#!/bin/sh\necho '" + ready + "'\n"
        for i, answer in enumerate(answers):
            with open(os.path.join(folder, str(i)), "w") as f:
                f.write(answer + "\n")
            program += "read line\n" + (answer if raw else f"cat {f.name}") + "\n"
        with open(os.path.join(folder, "hindsight"), "w") as f:
            f.write(program + "sleep 100\n")
        os.chmod(f.name, 0o700)
        with unittest.mock.patch.dict(os.environ, {"HINDSIGHT_BIN": folder}):
            return self.open("x")

    def test_answers_of_a_process_that_was_taken_over_do_no_harm(self) -> None:
        answers = ("[" * 100000, '{"id":1,"result":' + "9" * 5000 + "}", "[]", '{"id":1}', '{"no":1}', "\\xff")
        for answer in answers:
            with self.play([answer]) as r, self.assertRaisesRegex(hindsight.SessionError, "cannot be understood"):
                r._ask("range")

    def test_what_came_before_a_mistake_is_not_lost(self) -> None:
        answers = (
            '{"id":1,"result":{"list":1,"total":9}}',
            '{"id":2,"items":[1,2]}\n{"id":2,"error":{"kind":"recording","message":"it is\\u001b damaged"}}',
        )
        r = self.play(answers)
        taken = []
        with self.assertRaises(hindsight.RecordingError) as e:
            for one in Listing(r, "numbers", "numbers", {}, lambda n: n):
                taken.append(one)
        self.assertEqual(taken, [1, 2])
        self.assertEqual(str(e.exception), "it is\\u001b damaged")

    def test_what_an_abandoned_question_opened_is_closed(self) -> None:
        r = self.open(long())
        slot_wait = r._channel._wait

        def interrupted(slot: object) -> None:
            r._channel._wait = slot_wait
            raise KeyboardInterrupt

        for _ in range(100):
            r._channel._wait = interrupted
            with self.assertRaises(KeyboardInterrupt):
                r.events().total
            r.begin
        self.assertEqual(r._channel._abandoned, set())
        self.assertEqual(r._channel._slots, {})
        self.assertGreater(r.events().total, 0)

    def test_a_reader_that_fails_is_an_error(self) -> None:
        r = self.open(crash())
        with unittest.mock.patch.object(r._channel, "_take", side_effect=MemoryError):
            with self.assertRaisesRegex(hindsight.SessionError, "MemoryError"):
                r.begin
        with self.assertRaises(hindsight.SessionError):
            r.begin

    def test_a_process_that_stops_answering_is_an_error(self) -> None:
        r = self.play(["exec >&-"], raw=True)
        with self.assertRaises(hindsight.SessionError):
            r._ask("range")

    def test_a_copy_of_this_process_cannot_ask(self) -> None:
        r = self.open(crash())
        pid = os.fork()
        if pid == 0:
            try:
                r.begin
            except hindsight.SessionError as e:
                r.close()
                os._exit(0 if "another process" in str(e) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(r.begin.count, 0)

    def test_threads_may_ask_at_the_same_time(self) -> None:
        r = self.open(crash())
        found = []

        def ask() -> None:
            for _ in range(20):
                found.append((r.crash.pc, r.calls("sum").total))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((len(found), len(set(found))), (80, 1))

    def test_another_thread_can_cancel(self) -> None:
        r = self.open(long())
        end = r.end
        threading.Timer(0.3, r.cancel).start()
        begin = time.monotonic()
        with self.assertRaises(hindsight.CancelledError):
            while True:
                end.run(**SLOW)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(r.begin.count, 0)

    def test_a_cancelled_question_has_the_right_answer_or_none(self) -> None:
        source = path("work.c")
        with open(source, "w") as f:
            f.write(WORK)
        subprocess.run(["gcc", "-g", "-O0", source, "-o", path("work")], check=True)
        places = [f"{i}%" for i in range(20, 100, 4)]
        with hindsight.record([path("work")], output=path("work.hst")) as r:
            right = [[v.text for v in r.at(p).variables] for p in places]
        self.assertEqual([len(texts) for texts in right], [4] * len(places))
        r = self.open(path("work.hst"))
        moments = [r.at(p) for p in places]
        cancelled = 0
        for turn in range(1000):
            if turn >= 60 and cancelled:
                break
            # From far away, so that it takes a while.
            i = turn * 7 % len(places)
            timer = threading.Timer(turn % 20 * 0.001, r.cancel)
            timer.start()
            try:
                self.assertEqual([v.text for v in moments[i].variables], right[i])
            except hindsight.CancelledError:
                cancelled += 1
            timer.join()
        self.assertGreater(cancelled, 0)

    def run_python(self, text: str) -> "subprocess.Popen[str]":
        folder = os.path.dirname(os.path.abspath(__file__))
        code = f"import sys; sys.path.insert(0, {folder!r})\n" + textwrap.dedent(text)
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)

    def test_an_interrupt_cancels_the_question(self) -> None:
        # The whole group gets the signal, as from a terminal.
        program = self.run_python(
            f"""
            import hindsight, time
            from common import SLOW
            r = hindsight.open({long()!r})
            end = r.end
            for _ in range(3):
                try:
                    print("ask", flush=True)
                    while True:
                        end.run(**SLOW)
                except KeyboardInterrupt:
                    begin = time.monotonic()
                    print(r.begin.count, flush=True)
                    print(time.monotonic() - begin < 5, flush=True)
            """
        )
        said = []
        for _ in range(3):
            said.append(program.stdout.readline())
            time.sleep(0.3)
            os.killpg(program.pid, signal.SIGINT)
            said += [program.stdout.readline(), program.stdout.readline()]
        program.stdout.close()
        self.assertEqual(program.wait(), 0)
        self.assertEqual(said, ["ask\n", "0\n", "True\n"] * 3)

    def test_an_interrupted_question_in_sql_ends(self) -> None:
        program = self.run_python(
            f"""
            import hindsight
            r = hindsight.open({long()!r})
            try:
                print("ask", flush=True)
                r.sql("SELECT mnemonic, count(*) FROM instructions GROUP BY 1").fetchall()
            except KeyboardInterrupt:
                print(r.sql("SELECT 1 AS one").fetchone()["one"])
            """
        )
        self.assertEqual(program.stdout.readline(), "ask\n")
        time.sleep(0.4)
        os.killpg(program.pid, signal.SIGINT)
        self.assertEqual(program.stdout.read(), "1\n")
        program.stdout.close()
        self.assertEqual(program.wait(), 0)

    def test_an_interrupted_recording_leaves_nothing(self) -> None:
        # The program ignores the signal.
        program = self.run_python(
            """
            import hindsight, hindsight._record, os, tempfile
            import common
            hindsight._record.PATIENCE = 0.5
            tempfile.tempdir = tempfile.mkdtemp(dir=common.FOLDER)
            try:
                hindsight.record(["/bin/sh", "-c", "trap '' INT; echo $$; exec sleep 100"], quiet=True)
            except KeyboardInterrupt:
                print(os.listdir(tempfile.tempdir))
            """
        )
        pid = int(program.stdout.readline())
        os.killpg(program.pid, signal.SIGINT)
        self.assertEqual(program.stdout.read(), "[]\n")
        program.stdout.close()
        self.assertEqual(program.wait(), 0)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_a_process_that_ends_leaves_nothing(self) -> None:
        program = self.run_python(
            f"""
            import hindsight
            r = hindsight.open({crash()!r})
            print(r._channel.pid, flush=True)
            """
        )
        pid = int(program.stdout.read())
        program.stdout.close()
        self.assertEqual(program.wait(), 0)
        deadline = time.monotonic() + 10
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))


if __name__ == "__main__":
    unittest.main()
