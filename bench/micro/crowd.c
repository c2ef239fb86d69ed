// Many guests that connect at once; measures each from connect to WELCOME. Prints `measured NAME
// MICROSECONDS`: of the guests' times, and `all`, from the first connect to the last WELCOME.
//
//   crowd HOST:PORT COUNT         sessions of the monitor there; the token is in GPUFERRY_TOKEN
//   crowd plain COUNT             the floor: as many connections, each accepted by a peer that says one byte
//   crowd HOST:PORT COUNT hold    prints, and keeps its sessions until its standard input ends
//
// One thread and epoll, so that what is measured is the other side. No guest waits for another: whoever was
// answered goes on while others still connect. It does not sleep: to wake a guest would be the other side's
// work.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "gpuferry/frames.h"
#include "gpuferry/messages.h"
#include "wire/sha256.h"

#define MOST_BYTES 8192 // of GREETING and WELCOME

struct guest {
    int fd;
    double began, granted;
    size_t got;
    unsigned char data[MOST_BYTES];
};

static struct gf_hmac token; // that has taken in the token, and nothing else yet

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void say_hello(struct guest *guest) {
    struct {
        struct gf_header header;
        struct gf_hello body;
    } __attribute__((packed)) hello = {
        .header = {.size = sizeof hello, .op = GF_OP_HELLO},
        .body = {.version = GF_PROTOCOL_VERSION,
                 .spec_hash = GF_SPEC_HASH,
                 .pid = (uint32_t)getpid(),
                 .devices = 1,
                 .program = "crowd"},
    };
    const struct gf_greeting *greeting = (const void *)(guest->data + sizeof(struct gf_header));
    struct gf_hmac hmac = token;
    if (getrandom(hello.body.nonce, sizeof hello.body.nonce, 0) != sizeof hello.body.nonce)
        die("getrandom");
    gf_hmac_update(&hmac, GF_PROOF_GUEST, strlen(GF_PROOF_GUEST));
    gf_hmac_update(&hmac, greeting->nonce, sizeof greeting->nonce);
    gf_hmac_update(&hmac, hello.body.nonce, sizeof hello.body.nonce);
    gf_hmac_update(&hmac, &hello.body, offsetof(struct gf_hello, proof));
    gf_hmac_final(&hmac, hello.body.proof);
    if (write(guest->fd, &hello, sizeof hello) != sizeof hello)
        die("HELLO");
}

// Reads what has come; true once the guest has what it came for.
static int step(struct guest *guest, int plain) {
    ssize_t got = read(guest->fd, guest->data + guest->got, MOST_BYTES - guest->got);
    if (got <= 0)
        die("read");
    if (plain)
        return 1;
    guest->got += (size_t)got;
    const struct gf_header *header = (const void *)guest->data;
    while (guest->got >= sizeof *header && guest->got >= header->size) {
        if (header->size < sizeof *header || header->size > MOST_BYTES || header->op == GF_OP_REFUSED) {
            fprintf(stderr, "refused\n");
            exit(1);
        }
        if (header->op == GF_OP_WELCOME)
            return 1;
        if (header->op != GF_OP_QUEUED)
            say_hello(guest);
        guest->got -= header->size;
        memmove(guest->data, guest->data + header->size, guest->got);
    }
    return 0;
}

// Not measured: the clock starts with connect.
static void prepare(struct guest *guest) {
    guest->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (guest->fd < 0 || setsockopt(guest->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0)
        die("socket");
}

static void arrive(struct guest *guest, const struct sockaddr_in *address, int epoll) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = guest};
    guest->began = now();
    if (connect(guest->fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno != EINPROGRESS)
        die("connect");
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, guest->fd, &event) != 0)
        die("epoll_ctl");
}

static void leave(struct guest *guest, int plain) {
    struct gf_header close_session = {.size = sizeof close_session, .op = GF_OP_sessionClose};
    if (!plain && write(guest->fd, &close_session, sizeof close_session) != sizeof close_session)
        die("sessionClose");
    close(guest->fd);
}

static pid_t plain_peer(struct sockaddr_in *address, int backlog) {
    socklen_t length = sizeof *address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)address, length) != 0 || listen(listener, backlog) != 0 ||
        getsockname(listener, (struct sockaddr *)address, &length) != 0)
        die("listen");
    pid_t child = fork();
    if (child)
        return child;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || write(fd, "!", 1) != 1)
            die("accept");
    }
}

static void parse(const char *text, struct sockaddr_in *address) {
    char host[64];
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof host)
        die(text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    address->sin_port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, host, &address->sin_addr) != 1)
        die(text);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    int plain = strcmp(argv[1], "plain") == 0;
    size_t count = strtoull(argv[2], NULL, 10), done = 0;
    struct guest *guests = calloc(count, sizeof *guests);
    double *took = calloc(count, sizeof *took);
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct rlimit files;
    pid_t peer = 0;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const char *secret = getenv("GPUFERRY_TOKEN");
    if (plain)
        peer = plain_peer(&address, (int)count);
    else if (secret)
        parse(argv[1], &address);
    else
        return 2;
    if (secret)
        gf_hmac_init(&token, secret, strlen(secret));

    int epoll = epoll_create1(0);
    for (size_t i = 0; i < count; i++)
        prepare(&guests[i]);
    for (size_t arrived = 0; done < count;) {
        struct epoll_event events[64];
        if (arrived < count)
            arrive(&guests[arrived++], &address, epoll);
        int ready = epoll_wait(epoll, events, 64, 0);
        for (int i = 0; i < ready; i++) {
            struct guest *guest = events[i].data.ptr;
            if (guest->granted == 0 && step(guest, plain)) {
                guest->granted = now();
                took[done++] = guest->granted - guest->began;
            }
        }
    }
    double all = now() - guests[0].began;
    qsort(took, count, sizeof *took, compare);
    printf("measured median %.9g\n", took[count / 2]);
    printf("measured p99 %.9g\n", took[count * 99 / 100]);
    printf("measured all %.9g\n", all);
    fflush(stdout);
    if (argc > 3)
        while (getchar() != EOF)
            ;
    for (size_t i = 0; i < count; i++)
        leave(&guests[i], plain);
    if (peer)
        kill(peer, SIGKILL);
    return 0;
}
