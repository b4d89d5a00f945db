UNLIKE = "this run is not like the recorded one"
# Entries of the auxiliary vector that tell what the machine and its kernel can do.
MACHINE = {6: "AT_PAGESZ", 11: "AT_UID", 12: "AT_EUID", 13: "AT_GID", 14: "AT_EGID", 16: "AT_HWCAP",
           17: "AT_CLKTCK", 23: "AT_SECURE", 26: "AT_HWCAP2", 29: "AT_HWCAP3", 51: "AT_MINSIGSTKSZ"}
# An entry that says nothing.
IGNORE = 1
# Bytes of a variable, which may have 128 KiB. The kernel leaves as many as that below what it lays on a stack.
ROOM = 1 << 16
# How far the live program's stack is from the recorded one, once it is known.
shift = None


# Why the program has stopped, as gdb tells it.
stopped = []
gdb.events.stop.connect(stopped.append)


class Unlike(gdb.GdbError):
    """The live program is not where the recorded one was, or holds something else."""

    def __init__(self, part, what, recorded, live, message=None, why=UNLIKE):
        message = message or "%s is %s after part %d, in the recording %s" % (what, live, part, recorded)
        super().__init__("%s: %s" % (message, why))
        self.difference = {"part": part, "what": what, "recorded": recorded, "live": live}


def shown(text):
    """A text that may say anything, without what a terminal would obey."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def tell(text):
    """Says something that may be why the two part later."""
    gdb.write("not as recorded: %s\n" % text, gdb.STDERR)


def mapped():
    """What the live program has mapped: the first address, the end, and the path."""
    pid = gdb.selected_inferior().pid
    with open("/proc/%d/maps" % pid, encoding="utf-8", errors="surrogateescape", newline="\n") as maps:
        for line in maps:
            words = line[:-1].split(None, 5)
            begin, end = words[0].split("-")
            path = words[5].replace("\\012", "\n") if len(words) == 6 else ""
            yield int(begin, 16), int(end, 16), path


def base(number):
    """The lowest address at which the live program has a file mapped. None: nowhere."""
    return min((m[0] for m in mapped() if m[2] == FILES[number]), default=None)


def place(address):
    """An address in words."""
    for begin, end, path in mapped():
        if begin <= address < end and path.startswith("/"):
            return "%s+%#x" % (shown(path), address - min(m[0] for m in mapped() if m[2] == path))
    return "%#x" % address


def register(name):
    return int(gdb.newest_frame().read_register(name)) % 2**64


def prepare():
    """Has the program start where the recorded one did, with enough room on its stack for what that had there."""
    if STACK is not None:
        for i in range((STACK["end"] - STACK["pointer"]) // ROOM):
            # What it gets then takes the place of this.
            gdb.execute("set environment HINDSIGHT_%d %s" % (i, ROOM * "x"))
    path = os.fsdecode(FOLDER)
    if not os.path.isdir(path):
        tell("there is no directory %s" % shown(path))
    elif path != path.strip() or not path.isprintable():
        tell("gdb cannot be told to start it in the directory %s" % shown(path))
    else:
        gdb.execute("set cwd " + path)


def stack():
    """Gives the program the arguments, the environment and the random bytes that the recorded one got, and lays them on
    its stack as they lay there, a number of whole pages away: some code looks at where in its page a text is."""
    global shift
    if STACK is None:
        tell("how the recorded program's stack began is not known")
        return
    inferior, sp = gdb.selected_inferior(), register("rsp")

    def words(at, count):
        return struct.unpack("<%dQ" % count, bytes(inferior.read_memory(at, 8 * count)))

    # Behind the arguments and the environment, which null pointers end.
    at = sp + 8 * (words(sp, 1)[0] + 2)
    while words(at, 1)[0]:
        at += 8
    at += 8
    live = {}
    while words(at, 1)[0]:
        kind, value = words(at, 2)
        live[kind] = value
        at += 16
    for kind, value in AUXILIARY:
        if kind in MACHINE and value is not None and live.get(kind) != value:
            tell("%s is %s, in the recording %#x" % (MACHINE[kind], live.get(kind), value))
    top = next(m[1] for m in mapped() if m[0] <= sp < m[1]) - 8
    pages = -(-(STACK["end"] - top) // 4096)
    delta = 4096 * pages
    block = bytearray(STACK["end"] - STACK["pointer"])

    def put(at, data):
        at -= STACK["pointer"]
        if at < 0 or at + len(data) > len(block):
            raise gdb.GdbError("the recorded stack is not as it should be")
        block[at:at + len(data)] = data

    pointed = {}
    for kind, to, data in STACK["pointed"]:
        # A number: so many bytes of this machine.
        if not isinstance(data, int):
            put(to, data)
        elif kind in live:
            put(to, bytes(inferior.read_memory(live[kind], data)))
        pointed[kind] = to - delta
    out, at = [len(ARGUMENTS)], STACK["texts"]
    for texts in ARGUMENTS, ENVIRONMENT:
        for text in texts:
            put(at, text + b"\0")
            out.append(at - delta)
            at += len(text) + 1
        out.append(0)
    for kind, _ in AUXILIARY:
        if kind == IGNORE:
            out += [IGNORE, 0]
        elif kind in live:
            out += [kind, pointed.get(kind, live[kind])]
    put(STACK["pointer"], struct.pack("<%dQ" % (len(out) + 2), *out, 0, 0))
    inferior.write_memory(STACK["pointer"] - delta, bytes(block))
    gdb.execute("set $rsp = %#x" % (STACK["pointer"] - delta))
    shift = delta


def go(part, kind, file, offset, hits, pc_file, pc_offset):
    """Sets something, runs until it has stopped so many times, and takes it away."""
    first = base(file)
    if first is None:
        raise Unlike(part - 1, shown(FILES[file]), "mapped", "not mapped")
    address = first + offset
    if kind == "break":
        stop = gdb.Breakpoint("*%#x" % address, internal=True)
    else:
        stop = gdb.Breakpoint("*(long *) %#x" % address, type=gdb.BP_WATCHPOINT,
                              wp_class=gdb.WP_ACCESS, internal=True)
    try:
        stop.ignore_count = hits - 1
        stopped.clear()
        gdb.execute("continue", to_string=True)
        if not gdb.selected_inferior().pid:
            raise Unlike(part, "the program", "running", "ended", "the program ended in part %d" % part)
        count, pc = stop.hit_count, register("rip")
    finally:
        if stop.is_valid():
            stop.delete()
    signals = [s.stop_signal for s in stopped if isinstance(s, gdb.SignalEvent)]
    if "SIGINT" in signals:
        raise KeyboardInterrupt
    if count != hits:
        live = "%d, and something else stopped it at %s" % (count, place(pc))
        raise Unlike(part, "stops", str(hits), live, "something else stopped the program at %s, "
                     "behind %d of %d stops of part %d" % (place(pc), count, hits, part))
    if pc_file is not None and (base(pc_file) is None or pc != base(pc_file) + pc_offset):
        raise Unlike(part, "the program", "at %s+%#x" % (shown(FILES[pc_file]), pc_offset), "at " + place(pc))


MAYBE = "it may be another moment, or a value that is another one in each run, such as a time"


def unlike():
    """The first register that does not hold what it held in the recording, as an error. Not all can be compared."""
    for name, kind, file, value in REGISTERS:
        live, recorded, why = register(name), "%#x" % value, UNLIKE
        if kind == "file":
            first = base(file)
            wanted, recorded = None if first is None else first + value, "%s+%#x" % (shown(FILES[file]), value)
        elif kind == "stack":
            wanted = live if shift is None else value - shift
        else:
            wanted, why = value, MAYBE
        if live != wanted:
            now = "the stack %+d bytes away" % (live - wanted) if kind == "stack" else place(live)
            return Unlike(len(WAY), "register " + name, recorded, now, why=why)
    return None
