// Families of processes: orphans and who takes them, daemons, inherited descriptors and memory, programs that are
// executed in unusual ways, and statuses of all kinds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void ended(const char *what, int status) {
    printf("%s: exit %d, signal %d, stopped %d, continued %d\n", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0, WIFSTOPPED(status) ? WSTOPSIG(status) : 0, !!WIFCONTINUED(status));
}

// A grandchild whose parent has ended becomes this process's child.
static void orphans(void) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int go[2];
    pipe(go);
    pid_t child = fork();
    if (!child) {
        if (!fork()) {
            char c;
            close(go[1]);
            read(go[0], &c, 1);
            _exit(getppid() == 1 ? 21 : 20);
        }
        _exit(10);
    }
    int status;
    waitpid(child, &status, 0);
    ended("parent of an orphan", status);
    close(go[0]), close(go[1]);
    pid_t other = wait(&status);
    printf("another: %d, none left: %d\n", other != child, wait(NULL) == -1 && errno == ECHILD);
    ended("orphan", status);
}

// A daemon in a session of its own. At the end it is a child of this process, which is a subreaper.
static void daemons(void) {
    int says[2];
    pipe(says);
    pid_t child = fork();
    if (!child) {
        setsid();
        if (fork()) _exit(0);
        char text[64];
        int own = getsid(0) != getpid(), n;
        chdir("/"), umask(0);
        usleep(50000);
        n = snprintf(text, sizeof text, "leader %d, terminal %d", !own, open("/dev/tty", O_RDWR) >= 0);
        write(says[1], text, n);
        _exit(33);
    }
    int status;
    waitpid(child, &status, 0);
    close(says[1]);
    char text[64] = "";
    read(says[0], text, sizeof text - 1);
    pid_t daemon = wait(&status);
    printf("daemon says: %s; %d\n", text, daemon > 0);
    ended("daemon", status);
    close(says[0]);
}

// Memory and a pipe are handed through a socket to a process that has neither. Both then count in the memory.
static void handed(void) {
    int s[2], p[2];
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
    pid_t child = fork();
    char control[CMSG_SPACE(2 * sizeof(int))] = {0}, byte = 'x';
    struct iovec v = {&byte, 1};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (!child) {
        recvmsg(s[1], &h, MSG_CMSG_CLOEXEC);
        int *fds = (int *)CMSG_DATA(CMSG_FIRSTHDR(&h));
        atomic_long *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
        for (int i = 0; i < 5000; i++) atomic_fetch_add(m, 1);
        dprintf(fds[1], "got %d bytes", (int)h.msg_controllen);
        _exit(0);
    }
    int fd = memfd_create("handed", 0);
    ftruncate(fd, 4096);
    pipe(p);
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    *c = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(c), (int[2]){fd, p[1]}, 2 * sizeof(int));
    sendmsg(s[0], &h, 0);
    atomic_long *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 5000; i++) atomic_fetch_add(m, 1);
    char text[64] = "";
    read(p[0], text, sizeof text - 1);
    int status;
    waitpid(child, &status, 0);
    printf("%s, %ld\n", text, atomic_load(m));
    ended("receiver", status);
}

static char *const quiet[] = {"sh", "-c", "exit 7", NULL};

static void *executes(void *arg) {
    execv("/bin/sh", quiet);
    return NULL;
}

static int runs(void *arg) {
    *(volatile int *)arg += 1;
    return 44;
}

// Programs that are executed by a thread other than the first, by a script's descriptor, or after the file was
// deleted. Clones with a stack of their own, and one that is its parent's sibling.
static void unusual(void) {
    int status;
    pid_t child = fork();
    if (!child) {
        pthread_t t;
        pthread_create(&t, NULL, executes, NULL);
        pthread_join(t, NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    ended("executed by a thread", status);
    int fd = memfd_create("script", 0);
    dprintf(fd, "#!/bin/sh\nexit 8\n");
    if (!(child = fork())) {
        fexecve(fd, (char *[]){"script", NULL}, environ);
        _exit(98);
    }
    waitpid(child, &status, 0);
    ended("script by descriptor", status);
    char name[] = "/tmp/hindsight-XXXXXX";
    int copy = mkstemp(name), from = open("/bin/sh", O_RDONLY);
    struct stat st;
    fstat(from, &st);
    for (off_t at = 0; at < st.st_size;) if (copy_file_range(from, &at, copy, NULL, st.st_size - at, 0) <= 0) break;
    fchmod(copy, 0755);
    close(copy), copy = open(name, O_RDONLY | O_CLOEXEC);
    unlink(name);
    if (!(child = fork())) {
        fexecve(copy, quiet, environ);
        _exit(97);
    }
    waitpid(child, &status, 0);
    ended("deleted file", status);
    static char stack[65536];
    int touched = 0;
    child = clone(runs, stack + sizeof stack, SIGCHLD, &touched);
    waitpid(child, &status, 0);
    ended("clone", status);
    printf("own memory %d\n", touched == 0);
    child = clone(runs, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &touched);
    waitpid(child, &status, 0);
    ended("clone in the same memory", status);
    printf("same memory %d\n", touched == 1);
    if (!(child = fork())) _exit(clone(runs, stack + sizeof stack, CLONE_PARENT | SIGCHLD, &touched) > 0);
    int n = 0, all = 0;
    while (wait(&status) > 0) n++, all += WEXITSTATUS(status);
    printf("children %d, statuses %d\n", n, all);
}

static void statuses(void) {
    int status;
    siginfo_t i;
    struct rusage u;
    pid_t child = fork();
    if (!child) for (;;) pause();
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    ended("stopped", status);
    kill(child, SIGCONT);
    waitpid(child, &status, WCONTINUED);
    ended("continued", status);
    kill(child, SIGTERM);
    waitid(P_PID, child, &i, WEXITED | WNOWAIT);
    printf("waitid: %d %d %d\n", i.si_code, i.si_status, i.si_pid == child);
    wait4(child, &status, 0, &u);
    ended("terminated", status);
    if (!(child = fork())) {
        // Its own child ends in yet another way.
        if (!fork()) abort();
        wait(&status);
        _exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    waitpid(child, &status, 0);
    ended("parent of an aborted one", status);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    orphans(), daemons(), handed(), unusual(), statuses();
}
