// Makes many system calls, with arguments of all kinds. Only the first thread of the first process is looked at.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static void handler(int n) {}

static void files(void) {
    char buf[100] = "";
    struct stat st;
    int fd = open("calls.txt", O_RDWR | O_CREAT | O_TRUNC, 0640);
    write(fd, "a \"quoted\" line\n\t\001\0012 and more behind it", 40);
    pwrite(fd, "xyz", 3, 2);
    lseek(fd, 0, SEEK_SET);
    read(fd, buf, 10);
    pread(fd, buf, 100, 5);
    fstat(fd, &st);
    stat("/dev/null", &st);
    lstat("/nonexistent", &st);
    fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_GETFD);
    fcntl(fd, F_DUPFD, 50);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
    fcntl(fd, F_SETLK, &lock);
    flock(fd, LOCK_EX | LOCK_NB);
    ftruncate(fd, 7);
    fsync(fd);
    fchmod(fd, 0600);
    struct timespec times[2] = {{1, 2}, {0, UTIME_NOW}};
    futimens(fd, times);
    close(fd);
    close(99);
    access("calls.txt", R_OK | W_OK);
    access("/none", F_OK);
    mkdir("calls.dir", 0755);
    rename("calls.txt", "calls.dir/x");
    symlink("x", "calls.dir/link");
    readlink("calls.dir/link", buf, sizeof buf);
    readlink("calls.dir/x", buf, sizeof buf);
    DIR *d = opendir("calls.dir");
    while (readdir(d));
    closedir(d);
    unlink("calls.dir/link");
    unlink("calls.dir/x");
    rmdir("calls.dir");
    rmdir("calls.dir");
    umask(umask(022));
    getcwd(buf, sizeof buf);
    int p[2];
    pipe2(p, O_CLOEXEC | O_NONBLOCK);
    read(p[0], buf, 5);
    struct iovec v[2] = {{"one", 3}, {"two and three", 13}};
    writev(p[1], v, 2);
    struct iovec w[2] = {{buf, 4}, {buf + 4, 50}};
    readv(p[0], w, 2);
    ioctl(p[0], FIONREAD, (int *)buf);
    ioctl(p[0], FIONBIO, &(int){1});
    struct pollfd polled[2] = {{p[0], POLLIN, 0}, {p[1], POLLOUT | POLLERR, 0}};
    poll(polled, 2, 0);
    poll(polled, 1, 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(p[0], &set);
    write(p[1], "x", 1);
    select(p[0] + 1, &set, 0, 0, &(struct timeval){0, 5});
    dup2(p[0], 40);
    dup3(p[0], 41, O_CLOEXEC);
    struct file_handle *h = calloc(1, sizeof *h + MAX_HANDLE_SZ);
    int mount;
    name_to_handle_at(AT_FDCWD, "/", h, &mount, 0);
    name_to_handle_at(AT_FDCWD, "/", h, &mount, AT_SYMLINK_FOLLOW);
    h->handle_bytes = MAX_HANDLE_SZ + 1;
    name_to_handle_at(40, "", h, &mount, AT_EMPTY_PATH);
    close(p[0]), close(p[1]);
}

static void signals(void) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaddset(&a.sa_mask, SIGINT), sigaddset(&a.sa_mask, SIGCHLD);
    sigaction(SIGUSR1, &a, 0);
    sigaction(SIGUSR1, 0, &a);
    signal(SIGPIPE, SIG_IGN);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, 0);
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, 0, &set);
    kill(0x3fffffff, SIGKILL);
    signalfd(-1, &set, SFD_CLOEXEC);
    sigtimedwait(&set, 0, &(struct timespec){0, 1000});
}

static void sockets(void) {
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP), on = 1, n;
    socklen_t len = sizeof on;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    getsockopt(s, SOL_SOCKET, SO_ERROR, &on, &len);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr = {htonl(0x7f000001)}};
    connect(s, (void *)&in, sizeof in);
    in.sin_port = 0;
    bind(s, (void *)&in, sizeof in);
    listen(s, 5);
    shutdown(s, SHUT_RDWR);
    struct sockaddr_un un = {AF_UNIX, "/none/of/these"};
    int u = socket(AF_UNIX, SOCK_DGRAM, 0);
    connect(u, (void *)&un, sizeof un);
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    sendto(pair[0], "hello", 5, MSG_NOSIGNAL, 0, 0);
    char buf[20];
    recv(pair[1], buf, sizeof buf, MSG_PEEK | MSG_DONTWAIT);
    struct iovec v = {buf, sizeof buf};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    recvmsg(pair[1], &m, 0);
    v.iov_len = 3;
    sendmsg(pair[1], &m, MSG_DONTWAIT);
    len = sizeof un;
    getsockname(pair[0], (void *)&un, &len);
    int e = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = 7};
    epoll_ctl(e, EPOLL_CTL_ADD, pair[0], &ev);
    epoll_wait(e, &ev, 1, 0);
    epoll_ctl(e, EPOLL_CTL_DEL, 99, 0);
    (void)n;
}

static void times_and_limits(void) {
    int t = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    timerfd_settime(t, 0, &(struct itimerspec){{0, 0}, {50, 5}}, 0);
    eventfd(3, EFD_CLOEXEC | EFD_SEMAPHORE);
    nanosleep(&(struct timespec){0, 1000}, 0);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000}, 0);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {50, 0}}, 0);
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    syscall(SYS_getrlimit, RLIMIT_CORE, &l);
    getpriority(PRIO_PROCESS, 0);
    sched_getscheduler(0);
    prctl(PR_SET_NAME, "renamed");
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct utsname u;
    uname(&u);
    syscall(SYS_getrandom, &u, 8, GRND_NONBLOCK);
    syscall(SYS_futex, &t, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    syscall(SYS_futex, &t, FUTEX_WAIT, 0, &(struct timespec){1, 0}, 0, 0);
}

static void memory(void) {
    char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(p, 4096, PROT_NONE);
    madvise(p, 8192, MADV_DONTNEED);
    p = mremap(p + 4096, 4096, 8192, MREMAP_MAYMOVE);
    munmap(p, 8192);
    mmap(0, 0, PROT_READ, MAP_SHARED, 77, 0);
    write(1, p, 5);
    stack_t s = {malloc(9000), 0, 9000};
    sigaltstack(&s, 0);
    sigaltstack(0, &s);
}

static void queues(void) {
    int q = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    struct msqid_ds s;
    struct msginfo all;
    msgctl(q, IPC_STAT, &s);
    s.msg_qbytes = 50;
    msgctl(q, IPC_SET, &s);
    msgctl(0, IPC_INFO, (void *)&all);
    msgctl(0, MSG_INFO, (void *)&all);
    // As a kernel with the default limit finds it.
    msgctl(q % 32768, MSG_STAT, &s);
    msgctl(q % 32768, MSG_STAT_ANY, &s);
    msgctl(q, IPC_RMID, 0);
    msgctl(q, IPC_STAT, &s);
    msgctl(-1, IPC_INFO, 0);
    s.msg_perm.uid = -1;
    msgctl(q, IPC_SET, &s);
}

int main(void) {
    files();
    signals();
    sockets();
    times_and_limits();
    memory();
    queues();
    int status;
    if (fork() == 0) _exit(3);
    waitpid(-1, &status, 0);
    waitpid(-1, &status, WNOHANG);
    execl("/none/such", "such", "an argument", (char *)0);
    return 5;
}
