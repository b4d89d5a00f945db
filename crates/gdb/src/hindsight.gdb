set confirm off
set breakpoint pending on
set non-stop off
set remotetimeout 3600
set unwindonsignal on

# What later commands look at. Conditions are such that all languages have them, of which some know neither != nor ==.
# gdb warns where a language is chosen that is not the frame's. Before there is a program it may take addresses for
# shorter.
pipe set architecture i386:x86-64 | cat >/dev/null
with language c -- set $hindsight_led = (unsigned char *) 0x9e48494e44534754
with language c -- set $hindsight_asks = (unsigned char *) 0x9e48494e4453475c
with language c -- set $hindsight_register = (unsigned char *) 0x9e48494e44534764
with language c -- set $hindsight_asks_end = $hindsight_asks + 1
pipe set architecture auto | cat >/dev/null

define hindsight-moved
  maintenance flush dcache
  sharedlibrary
  # Not 0: in another thread than the chosen one, which need not be there any more. gdb changes to it when it stops.
  pipe with language c -- set $hindsight_elsewhere = *$hindsight_led | cat >/dev/null
  if $hindsight_elsewhere
    # Backwards gdb makes no step of the old thread over a breakpoint, in which it expects no other thread.
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

# Commands are about the process that was chosen, and steps backwards about the thread. gdb tells the recording of either
# only when it looks at memory: when it has stopped it last spoke of any of those that it holds.
define hindsight-chosen
  if $_thread
    dump binary memory /dev/null $hindsight_asks $hindsight_asks_end
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

define when
  monitor when
end
document when
Shows the present position of the recording.
end

define seek
  # Without its argument the server says what is missing, which is an error.
  if $argc
    monitor seek $arg0
  else
    monitor seek
  end
  hindsight-moved
end
document seek
Goes to a place of the recording: seek 1A2:3F, seek 50%, seek begin, seek end, seek crash,
seek event:12, seek syscall:3 (numbers as `events` lists them).
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

# gdb's own are copies of a process, of which it makes none here.
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
  # Without its argument the server says what is missing, which is an error.
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
    # gdb takes it for an execve, of which it says much.
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
end

define last-write
  if $argc == 0
    monitor last-write
  end
  # An expression may have blanks in it, of which gdb makes several arguments.
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
  # Whether a name is that of a register the server says.
  if $argc == 1
    monitor who-wrote-register $arg0
    pipe with language c -- set $hindsight_was_register = *$hindsight_register | cat >/dev/null
  else
    set $hindsight_was_register = 0
  end
  if $hindsight_was_register
    set $hindsight_was_register = 0
  else
    # An expression may have blanks in it, of which gdb makes several arguments.
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
  # As for last-write; a command cannot pass on to another as many arguments as it has.
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
