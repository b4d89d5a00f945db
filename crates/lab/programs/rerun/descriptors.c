// One process sends descriptors to another one in messages: two at once, one more, and then an empty message. The other one
// uses them. With an argument, the descriptor of another file is sent.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

union control {
    char bytes[CMSG_SPACE(8 * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr align;
};

static int send_to(int to, const char *text, const int *fds, int count) {
    union control control;
    struct iovec part = {(void *)text, strlen(text)};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    return sendmsg(to, &m, 0);
}

static int receive(int from, char *text, int *fds, int flags) {
    union control control;
    struct iovec part = {text, 100};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int n = recvmsg(from, &m, flags), count = 0;
    if (n < 0 || m.msg_iov != &part || m.msg_control != &control) return -1;
    text[n] = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            int k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(fds + count, CMSG_DATA(c), k * sizeof(int));
            count += k;
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
            printf("from %d\n", ((struct ucred *)CMSG_DATA(c))->pid);
        }
    return count;
}

static void child(int from) {
    char text[101], bytes[100];
    int fds[8], one = 1;
    // It has numbers free that the sender does not have.
    int gap = dup(0);
    dup2(0, 20);
    close(gap);
    int n = receive(from, text, fds, MSG_CMSG_CLOEXEC);
    printf("%s: %d descriptors\n", text, n);
    int got = read(fds[0], bytes, sizeof bytes);
    printf("%d %.*s, %d\n", fds[0], got, bytes, fcntl(fds[0], F_GETFD));
    dprintf(fds[1], "through %d", fds[1]);
    close(fds[0]);
    setsockopt(from, SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    n = receive(from, text, fds, 0);
    printf("%s: %d descriptors, %d\n", text, n, fcntl(fds[0], F_GETFD));
    got = read(fds[0], bytes, sizeof bytes);
    printf("%d %.*s\n", fds[0], got, bytes);
    printf("%d at the end\n", receive(from, text, fds, 0));
    fflush(stdout);
}

int main(int argc, char **argv) {
    int pair[2], ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pipe(ends);
    if (!fork()) {
        close(pair[0]);
        close(ends[0]);
        close(ends[1]);
        child(pair[1]);
        _exit(0);
    }
    close(pair[1]);
    int file = open("file", O_RDONLY), other = open("other", O_RDONLY);
    int both[] = {argc > 1 ? other : file, ends[1]};
    send_to(pair[0], "two", both, 2);
    close(ends[1]);
    char bytes[100];
    int n = read(ends[0], bytes, sizeof bytes);
    printf("%.*s\n", n, bytes);
    send_to(pair[0], "one", &other, 1);
    close(pair[0]);
    int status;
    wait(&status);
    printf("%d\n", status);
}
