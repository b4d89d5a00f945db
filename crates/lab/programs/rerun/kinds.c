// Reads a message, by recvfrom, or by recvmsg if there is an argument. Says what came besides the bytes, which is nothing.
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int pair[2];
    char text[100], address[128], control[64];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (write(pair[0], "text", 4) != 4) return 2;
    struct iovec part = {text, sizeof text};
    struct msghdr m = {address, sizeof address, &part, 1, control, sizeof control, -1};
    if (argc > 1) {
        int n = recvmsg(pair[1], &m, 0);
        printf("%d %d %zu %d\n", n, m.msg_namelen, m.msg_controllen, m.msg_flags);
    } else {
        socklen_t len = sizeof address;
        int n = recvfrom(pair[1], text, sizeof text, 0, (struct sockaddr *)address, &len);
        printf("%d %d 0 0\n", n, len);
    }
    return 0;
}
