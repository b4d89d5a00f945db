# The program has neither of these open.
os.close(SCRIPT)
if OUT is not None:
    os.set_inheritable(OUT, False)


def quiet():
    """Has signals pass without a stop. Returns what was set before, as commands."""
    before = []
    for line in gdb.execute("info signals", to_string=True).splitlines():
        words = line.split()[:4]
        plain = len(words) == 4 and all(w in ("Yes", "No") for w in words[1:])
        if not plain or words[0] in ("SIGTRAP", "SIGINT") or words[1:] == ["No", "No", "Yes"]:
            continue
        now = [("" if yes == "Yes" else "no") + does for yes, does in zip(words[1:], ("stop", "print", "pass"))]
        before.append("handle %s %s" % (words[0], " ".join(now)))
    gdb.execute("handle all nostop noprint pass", to_string=True)
    return before


def same():
    """Ends the program if its file is not the one whose content was compared. It has executed nothing yet."""
    s = os.stat("/proc/%d/exe" % gdb.selected_inferior().pid)
    if (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) != PROGRAM:
        gdb.execute("kill")
        raise gdb.GdbError("the program's file was changed just now: it was not run")


def answer(text):
    """Writes the answer for scripts."""
    data = text.encode()
    while data:
        data = data[os.write(OUT, data):]


def say(difference, stops):
    """Says where the program has arrived."""
    if OUT is not None:
        said = None if difference is None else difference.difference
        answer(json.dumps({"position": POSITION, "reached": said is None, "stops": stops,
                           "settings": len(WAY), "difference": said}, indent=2) + "\n")
    elif difference is None:
        gdb.write("position %s after %d stops\n" % (POSITION, stops))
    else:
        gdb.write("hindsight: position %s: %s\n" % (POSITION, difference), gdb.STDERR)


def end():
    """Ends the program."""
    gdb.flush()
    if gdb.selected_inferior().pid:
        gdb.execute("kill", to_string=True)


def go_all():
    """Goes the whole way. Returns what differs, and the number of stops."""
    stops = 0
    try:
        stack()
        for i, part in enumerate(WAY):
            go(i + 1, *part)
            stops += part[3]
        return unlike(), stops
    except Unlike as e:
        return e, stops


def run():
    """Has the program started, goes the way, and says whether it has arrived."""
    try:
        gdb.execute("starti", to_string=True)
        same()
        if BATCH:
            # gdb would end with status 0, as if the program had arrived. The kernel ends the program with it.
            for number in signal.SIGTERM, signal.SIGHUP:
                signal.signal(number, signal.SIG_DFL)
        difference, stops = go_all()
    except KeyboardInterrupt:
        if BATCH:
            end()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        raise gdb.GdbError("interrupted")
    finally:
        for command in SIGNALS:
            gdb.execute(command, to_string=True)
        for name, on in zip(("confirm", "pagination"), ASKS):
            gdb.execute("set %s %s" % (name, "on" if on else "off"))
    say(difference, stops)
    if BATCH:
        end()
        gdb.execute("quit %d" % (difference is not None))
    if gdb.selected_inferior().pid:
        gdb.execute("frame")


SIGNALS = quiet()
prepare()
run()
