// The floors: what the same machine's sockets do with no gpuferry in between. Prints one number.
//
//   twin pingpong COUNT REQUEST REPLY   microseconds per round trip of messages of these sizes
//   twin up BYTES CHUNK                 seconds to write BYTES in chunks, until the peer says it has read
//   them twin down BYTES CHUNK               seconds to read BYTES that the peer writes in chunks twin
//   connect COUNT REQUEST REPLY    microseconds to connect and make one round trip
//
// The peer is a child process at the other end of a TCP connection over the loopback interface.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void send_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = write(fd, data, size);
        if (sent <= 0)
            die("write");
        data += sent;
        size -= (size_t)sent;
    }
}

static int receive_all(int fd, char *data, size_t size) {
    while (size > 0) {
        ssize_t got = read(fd, data, size);
        if (got < 0)
            die("read");
        if (got == 0)
            return 0;
        data += got;
        size -= (size_t)got;
    }
    return 1;
}

static void no_delay(int fd) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

static int dial(const struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        die("connect");
    no_delay(fd);
    return fd;
}

// Answers every request until the connection ends.
static void answer(int fd, char *buffer, size_t request, size_t reply) {
    while (receive_all(fd, buffer, request))
        send_all(fd, buffer, reply);
}

static void serve(int listener, const char *mode, size_t first, size_t second, size_t third, char *buffer) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            die("accept");
        no_delay(fd);
        if (strcmp(mode, "up") == 0) {
            for (size_t left = first; left > 0; left -= second < left ? second : left)
                receive_all(fd, buffer, second < left ? second : left);
            send_all(fd, "!", 1);
        } else if (strcmp(mode, "down") == 0) {
            for (size_t left = first; left > 0; left -= second < left ? second : left)
                send_all(fd, buffer, second < left ? second : left);
        } else {
            answer(fd, buffer, second, third);
        }
        close(fd);
    }
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    const char *mode = argv[1];
    size_t first = strtoull(argv[2], NULL, 10), second = strtoull(argv[3], NULL, 10);
    size_t third = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    size_t largest = second > third ? second : third;
    char *buffer = calloc(1, largest);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 16) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        die("listen");
    pid_t child = fork();
    if (child == 0)
        serve(listener, mode, first, second, third, buffer);

    double began, took;
    if (strcmp(mode, "connect") == 0) {
        began = now();
        for (size_t i = 0; i < first; i++) {
            int fd = dial(&address);
            send_all(fd, buffer, second);
            receive_all(fd, buffer, third);
            close(fd);
        }
        took = (now() - began) * 1e6 / (double)first;
    } else {
        int fd = dial(&address);
        began = now();
        if (strcmp(mode, "up") == 0) {
            for (size_t left = first; left > 0; left -= second < left ? second : left)
                send_all(fd, buffer, second < left ? second : left);
            receive_all(fd, buffer, 1);
            took = now() - began;
        } else if (strcmp(mode, "down") == 0) {
            for (size_t left = first; left > 0; left -= second < left ? second : left)
                receive_all(fd, buffer, second < left ? second : left);
            took = now() - began;
        } else {
            for (size_t i = 0; i < first; i++) {
                send_all(fd, buffer, second);
                receive_all(fd, buffer, third);
            }
            took = (now() - began) * 1e6 / (double)first;
        }
    }
    kill(child, SIGKILL);
    printf("%.9g\n", took);
    return 0;
}
