/* Reads and writes in many ways: a file in its order and out of it, sockets, random bytes. Prints what it got. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
int main(void) {
    char text[256], more[64];
    /* In order, with reads that are shorter than asked for. */
    int f = open("ordered", O_RDONLY);
    long n, sum = 0;
    while ((n = read(f, text, 100)) > 0) sum += n;
    close(f);
    printf("ordered %ld\n", sum);
    /* From its end to its beginning; the first part by a copy, after a seek. */
    f = open("backwards", O_RDONLY);
    pread(f, text, 100, 200);
    struct iovec parts[2] = {{text, 60}, {more, 40}};
    preadv(f, parts, 2, 100);
    int copy = dup(f);
    lseek(f, 0, SEEK_SET);
    read(copy, text, 40);
    read(f, text, 60);
    mmap(0, 300, PROT_READ, MAP_PRIVATE, f, 0);
    /* Only the middle of this one. */
    f = open("middle", O_RDONLY);
    pread(f, text, 100, 100);
    /* A connection to itself. */
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof to;
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind(server, (void *)&to, sizeof to);
    listen(server, 1);
    getsockname(server, (void *)&to, &len);
    connect(client, (void *)&to, sizeof to);
    struct sockaddr_in from;
    len = sizeof from;
    int peer = accept(server, (void *)&from, &len);
    printf("server %d client %d\n", ntohs(to.sin_port), ntohs(from.sin_port));
    send(client, "question", 8, 0);
    recv(peer, text, 4, MSG_PEEK);
    recv(peer, text, 4, 0);
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    parts[0].iov_len = 1;
    recvmsg(peer, &m, 0);
    writev(peer, (struct iovec[2]){{"the ", 4}, {"answer", 6}}, 2);
    read(client, text, sizeof text);
    unsigned char random[16];
    getrandom(random, sizeof random, 0);
    printf("random ");
    for (int i = 0; i < 16; i++) printf("%02x", random[i]);
    printf("\n");
    int out = open("made", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pwrite(out, "behind", 6, 6);
    write(out, "before", 6);
    return 0;
}
