/* Hindsight: speaking to the recorder from C and C++. There is nothing to link.
 *
 * Each function is one instruction that does nothing on a bare processor, so they can stay in
 * released programs. Under `hindsight record` it reaches the recorder.
 *
 *     #include "hindsight.h"
 *
 *     hindsight_start();                          // with `hindsight record --start-stopped`
 *     hindsight_mark("request", &id, sizeof id);  // `hindsight at mark:request:2` goes to the second one
 *     hindsight_state_point("ready");             // all memory is recorded here
 *     hindsight_stop();
 *
 * Starting and stopping concern the calling thread; threads begin as the thread that made them is.
 */
#ifndef HINDSIGHT_H
#define HINDSIGHT_H

#include <stddef.h>
#include <string.h>

/* What is asked for. */
enum { HINDSIGHT_ASK = 0, HINDSIGHT_START = 1, HINDSIGHT_STOP = 2, HINDSIGHT_MARK = 3, HINDSIGHT_STATE = 4 };

#if defined(__x86_64__) && !defined(__ILP32__) && (defined(__GNUC__) || defined(__clang__))
static inline int hindsight_request(long what, const void *name, size_t name_size,
                                    const void *payload, size_t payload_size) {
    long answer = 0;
    register size_t size __asm__("r8") = payload_size;
    /* nop dword ptr [rax + rax + 'HSMK'] */
    __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00, 0x48, 0x53, 0x4d, 0x4b"
                     : "+a"(answer)
                     : "D"(what), "S"(name), "d"(name_size), "c"(payload), "r"(size)
                     : "memory");
    return (int)answer;
}
#else
static inline int hindsight_request(long what, const void *name, size_t name_size,
                                    const void *payload, size_t payload_size) {
    (void)what, (void)name, (void)name_size, (void)payload, (void)payload_size;
    return 0;
}
#endif

/* Has the calling thread recorded from here on. 1: a recorder does so; 0: nobody records. */
static inline int hindsight_start(void) { return hindsight_request(HINDSIGHT_START, 0, 0, 0, 0); }

/* Has the calling thread go on unrecorded. */
static inline void hindsight_stop(void) { hindsight_request(HINDSIGHT_STOP, 0, 0, 0, 0); }

/* Puts a mark into the recording: a name (at most 256 bytes) and what belongs to it (at most 4096
 * bytes, may be null). Marks are kept while recording is stopped, too. */
static inline void hindsight_mark(const char *name, const void *payload, size_t size) {
    hindsight_request(HINDSIGHT_MARK, name, strlen(name), payload, size);
}

/* Sets a mark of this name (at most 256 bytes), and has all memory recorded there, or what has changed of it since the last
 * time. Replay can begin at such a state point without what came before. It is only a mark in a program with
 * several threads, with memory that others can change, or of which a part is recorded. */
static inline void hindsight_state_point(const char *name) {
    hindsight_request(HINDSIGHT_STATE, name, strlen(name), 0, 0);
}

/* Whether the calling thread is recorded. */
static inline int hindsight_is_recording(void) {
    return hindsight_request(HINDSIGHT_ASK, 0, 0, 0, 0);
}

#endif
