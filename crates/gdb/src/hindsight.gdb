set confirm off
set breakpoint pending on
set non-stop off
set remotetimeout 3600
set unwindonsignal on

define hindsight-moved
  maintenance flush dcache
  sharedlibrary
  # The recording may stand in another thread than the chosen one, which need not live here. gdb turns to that thread when
  # it stops there. (A condition is a number: some languages have neither != nor ==.)
  pipe monitor in-chosen-thread | grep -qx yes
  if $_shell_exitcode
    # Forwards gdb might first step the old thread over a breakpoint, and would expect no other thread.
    reverse-continue
  else
    maintenance flush register-cache
    frame
    display
  end
end
document hindsight-moved
Makes gdb look again after the recording was moved.
end

# Commands are about the chosen process, and steps backwards about the chosen thread. gdb tells the server which they are
# only before it reads something. This table is empty.
define hindsight-chosen
  if $_thread
    info os hindsight-chosen
  end
end
define hook-monitor
  hindsight-chosen
end
define hookpost-thread
  hindsight-chosen
end
define hook-reverse-step
  hindsight-chosen
end
define hook-reverse-stepi
  hindsight-chosen
end
define hook-reverse-next
  hindsight-chosen
end
define hook-reverse-nexti
  hindsight-chosen
end
define info hookpost-inferiors
  monitor processes
end

define renew
  monitor renew
  # There may be new libraries and threads where the session stands.
  sharedlibrary
end
document renew
Takes in what was written since, if the recording is still being written. `seek end` then goes to its new end.
end

define when
  monitor when
end
document when
Shows the present position of the recording.
end

define seek
  # Without an argument the server says what is missing, and that is an error.
  if $argc
    monitor seek $arg0
  else
    monitor seek
  end
  hindsight-moved
end
document seek
Goes to a place of the recording: seek 1A2:3F, seek 50%, seek begin, seek end, seek crash,
seek event:12, seek syscall:3 (numbers as `events` lists them), seek mark:NAME, seek state:2 (as
`states` lists them).
end

define states
  monitor states
end
document states
Lists the state points: where the recording has all memory.
end

define next-state
  monitor next-state
  hindsight-moved
end
document next-state
Goes to the next state point.
end

define previous-state
  monitor previous-state
  hindsight-moved
end
document previous-state
Goes to the last state point before this position.
end

define checkpoint
  if $argc
    monitor checkpoint $arg0
  else
    monitor checkpoint
  end
end
document checkpoint
Gives the present position a name, which is kept with the trace: checkpoint [NAME].
end

define checkpoints
  monitor checkpoints
end
document checkpoints
Lists the named positions.
end

# gdb's own checkpoints are copies of a process. It makes none here.
define info checkpoints
  monitor checkpoints
end
document info checkpoints
Lists the named positions.
end
define delete checkpoint
  if $argc
    monitor forget $arg0
  else
    monitor forget
  end
end
document delete checkpoint
Forgets a named position: delete checkpoint NAME.
end

define restart
  # Without an argument the server says what is missing, and that is an error.
  if $argc
    monitor restart $arg0
  else
    monitor restart
  end
  hindsight-moved
end
document restart
Goes to a named position: restart NAME.
end

define process
  if $argc
    monitor process $arg0
    # gdb takes it for an execve, and says much about that.
    pipe reverse-continue | cat >/dev/null
    monitor process
    frame
  else
    monitor process
  end
end
document process
Goes to the beginning of another program image of the recording, by its number: process IMAGE.
`monitor processes` lists them. Without a number it says in which one is.
end

# The bytes at $hindsight_at: not all languages have sizeof.
define hindsight-bounds
  eval "set $hindsight_begin = %lu", $hindsight_at
  eval "set $hindsight_end = %lu", $hindsight_at + 1
end

define known
  if $argc <= 1
    set $hindsight_at = &($arg0)
    hindsight-bounds
    eval "monitor memory %lu %lu", $hindsight_begin, $hindsight_end - $hindsight_begin
  else
    eval "monitor memory %lu %lu", $arg0, $arg1
  end
end
document known
Shows what is known of a variable's memory, why, and what it may also be where threads race: known EXPR.
With two arguments, of memory: known ADDRESS LENGTH.
What is not known may be carried over calls that were not recorded. It stands behind what is known.
end

define hindsight-assume
  if $argc
    monitor assume $arg0
    # Variables and the call stack may be others now.
    maintenance flush dcache
    # Without Python gdb has no such function.
    if $_isvoid($_memeq)
      maintenance flush register-cache
      if $_thread
        frame
        display
      end
    else
      python
if not hasattr(gdb, "hindsight_tell"):
    # The first value that is carried is told of. gdb shows nothing while it reads memory.
    def hindsight_tell():
        try:
            text = gdb.execute("monitor notes", to_string=True)
        except gdb.error:
            return
        gdb.write(text)
    # The user stays in the same frame, if that is still known.
    def hindsight_again():
        level, frame = 0, gdb.selected_frame()
        while frame.newer():
            level, frame = level + 1, frame.newer()
        gdb.execute("maintenance flush register-cache")
        try:
            gdb.execute("frame %d" % level)
        except gdb.error:
            gdb.execute("frame 0")
        gdb.execute("display")
    gdb.hindsight_tell, gdb.hindsight_again = hindsight_tell, hindsight_again
    gdb.events.before_prompt.connect(hindsight_tell)
if gdb.selected_thread():
    gdb.hindsight_again()
      end
    end
  else
    monitor assume
  end
end
document hindsight-assume
Chooses by what memory is completed that is not known since calls were not recorded: hindsight-assume WHAT.
  declared  by values from before and behind these calls, if their functions are declared to write something else
  straight  as if nothing that is not recorded had written any memory
  off       by nothing: only what is known is shown, as at first
Without an argument it says what is chosen. `known` tells what is known from what is not.
end

define last-write
  if $argc == 0
    monitor last-write
  end
  # gdb cuts an expression with blanks into several arguments.
  if $argc > 8
    echo More than eight words: write it with fewer blanks.\n
    hindsight-too-many-words
  end
  if $argc <= 1
    set $hindsight_at = &($arg0)
  end
  if $argc == 2
    set $hindsight_at = &($arg0 $arg1)
  end
  if $argc == 3
    set $hindsight_at = &($arg0 $arg1 $arg2)
  end
  if $argc == 4
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3)
  end
  if $argc == 5
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4)
  end
  if $argc == 6
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5)
  end
  if $argc == 7
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5 $arg6)
  end
  if $argc == 8
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5 $arg6 $arg7)
  end
  hindsight-bounds
  eval "monitor last-write %lu %lu", $hindsight_begin, $hindsight_end - $hindsight_begin
  hindsight-moved
end
document last-write
Goes to the instruction that wrote a variable last: last-write EXPR.
end

define who-wrote
  if $argc == 0
    monitor who-wrote
  end
  # The server knows which names are those of registers.
  if $argc == 1
    monitor who-wrote-register $arg0
    pipe monitor asked-register | grep -qx no
    set $hindsight_was_register = $_shell_exitcode
  else
    set $hindsight_was_register = 0
  end
  if $hindsight_was_register
    set $hindsight_was_register = 0
  else
    # gdb cuts an expression with blanks into several arguments.
    if $argc > 8
      echo More than eight words: write it with fewer blanks.\n
      hindsight-too-many-words
    end
    if $argc <= 1
      set $hindsight_at = &($arg0)
    end
    if $argc == 2
      set $hindsight_at = &($arg0 $arg1)
    end
    if $argc == 3
      set $hindsight_at = &($arg0 $arg1 $arg2)
    end
    if $argc == 4
      set $hindsight_at = &($arg0 $arg1 $arg2 $arg3)
    end
    if $argc == 5
      set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4)
    end
    if $argc == 6
      set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5)
    end
    if $argc == 7
      set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5 $arg6)
    end
    if $argc == 8
      set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5 $arg6 $arg7)
    end
    hindsight-bounds
    eval "monitor who-wrote %lu %lu", $hindsight_begin, $hindsight_end - $hindsight_begin
  end
end
document who-wrote
Says which instruction wrote a variable last, without going there: who-wrote EXPR.
Of a register, which instruction of this thread changed it last: who-wrote $rax.
end

define first-use
  if $argc == 0
    monitor first-use
  end
  # As for last-write. A command cannot pass its arguments on to another one, however many they are.
  if $argc > 8
    echo More than eight words: write it with fewer blanks.\n
    hindsight-too-many-words
  end
  if $argc <= 1
    set $hindsight_at = &($arg0)
  end
  if $argc == 2
    set $hindsight_at = &($arg0 $arg1)
  end
  if $argc == 3
    set $hindsight_at = &($arg0 $arg1 $arg2)
  end
  if $argc == 4
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3)
  end
  if $argc == 5
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4)
  end
  if $argc == 6
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5)
  end
  if $argc == 7
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5 $arg6)
  end
  if $argc == 8
    set $hindsight_at = &($arg0 $arg1 $arg2 $arg3 $arg4 $arg5 $arg6 $arg7)
  end
  hindsight-bounds
  eval "monitor first-use %lu %lu", $hindsight_begin, $hindsight_end - $hindsight_begin
  hindsight-moved
end
document first-use
Goes to the next instruction that reads or writes a variable: first-use EXPR.
end

define interest
  if $argc == 2
    monitor interest $arg0 $arg1
  else
    monitor interest $arg0 $arg1 $arg2
  end
end
document interest
Makes the index denser between two places, for quick steps back there: interest FROM TO [INSTRUCTIONS].
end

define threads-at
  monitor threads-at
end
document threads-at
Shows where each thread is at the present position.
end

define events
  if $argc
    monitor events $arg0
  else
    monitor events
  end
end
document events
Lists what happened: events [syscall|signal|exception|thread|process|module|gap|mark|regime].
end
set confirm on
