// The C twin of a monitor with idle API servers: what leases cost at least on this machine. It speaks the
// handshake of specs/WIRE.md: GREETING, HELLO whose proof is checked, WELCOME; then the socket goes to one of
// COUNT processes, once nobody else is at the door. No queue, no policy, no limits of time, no word of what
// went wrong.
//
//   lender COUNT     prints HOST:PORT; the token is in GPUFERRY_TOKEN; ends with its standard input
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpuferry/messages.h"
#include "gpuferry/frames.h"
#include "wire/sha256.h"

#define EVENTS 64

struct greeting_frame {
    struct gf_header header;
    struct gf_greeting body;
} __attribute__((packed));

struct hello_frame {
    struct gf_header header;
    struct gf_hello body;
} __attribute__((packed));

struct welcome_frame {
    struct gf_header header;
    struct gf_welcome body;
    struct gf_device device;
} __attribute__((packed));

enum kind { DOOR, GUEST, SERVER, INPUT };

struct peer {
    enum kind kind;
    int fd;
    struct peer *next; // of the idle servers, or of the guests that wait for one
    size_t got;
    uint8_t nonce[GF_NONCE_SIZE];
    struct hello_frame hello;
};

struct list {
    struct peer *first, *last;
};

static struct gf_hmac token; // that has taken in the token, and nothing else yet
static struct list idle, granted;
static int epoll;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void append(struct list *list, struct peer *peer) {
    peer->next = NULL;
    *(list->first ? &list->last->next : &list->first) = peer;
    list->last = peer;
}

static struct peer *take_first(struct list *list) {
    struct peer *first = list->first;
    list->first = first->next;
    return first;
}

static struct peer *watch(enum kind kind, int fd) {
    struct peer *peer = calloc(1, sizeof *peer);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    peer->kind = kind;
    peer->fd = fd;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        die("epoll_ctl");
    return peer;
}

static void greet(int fd) {
    struct peer *guest = watch(GUEST, fd);
    struct greeting_frame frame = {
        .header = {.size = sizeof frame, .op = GF_OP_GREETING},
        .body = {.magic = GF_MAGIC, .version = GF_PROTOCOL_VERSION},
    };
    if (getrandom(guest->nonce, sizeof guest->nonce, 0) != sizeof guest->nonce)
        die("getrandom");
    memcpy(frame.body.nonce, guest->nonce, sizeof guest->nonce);
    if (send(fd, &frame, sizeof frame, 0) != sizeof frame)
        die("GREETING");
}

static void prove(struct peer *guest, const char *what, const void *data, size_t size,
                  uint8_t proof[GF_HASH_SIZE]) {
    struct gf_hmac hmac = token;
    gf_hmac_update(&hmac, what, strlen(what));
    gf_hmac_update(&hmac, guest->nonce, sizeof guest->nonce);
    gf_hmac_update(&hmac, guest->hello.body.nonce, sizeof guest->hello.body.nonce);
    gf_hmac_update(&hmac, data, size);
    gf_hmac_final(&hmac, proof);
}

static void hear(struct peer *guest) {
    uint8_t proof[GF_HASH_SIZE];
    struct welcome_frame welcome = {.header = {.size = sizeof welcome, .op = GF_OP_WELCOME}};
    ssize_t got = recv(guest->fd, (char *)&guest->hello + guest->got, sizeof guest->hello - guest->got, 0);
    if (got <= 0)
        die("HELLO");
    guest->got += (size_t)got;
    if (guest->got < sizeof guest->hello)
        return;
    prove(guest, GF_PROOF_GUEST, &guest->hello.body, offsetof(struct gf_hello, proof), proof);
    if (!gf_digest_equal(proof, guest->hello.body.proof))
        die("wrong proof");
    prove(guest, GF_PROOF_SERVER, NULL, 0, welcome.body.proof);
    epoll_ctl(epoll, EPOLL_CTL_DEL, guest->fd, NULL);
    if (send(guest->fd, &welcome, sizeof welcome, 0) != sizeof welcome)
        die("WELCOME");
    append(&granted, guest);
}

static void hand_over(struct peer *guest, struct peer *server) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {
        .header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec grant = {&guest->hello.body, sizeof guest->hello.body};
    struct msghdr message = {
        .msg_iov = &grant, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), &guest->fd, sizeof(int));
    if (sendmsg(server->fd, &message, 0) < 0)
        die("grant");
    close(guest->fd);
    free(guest);
}

// A process that has one guest after the other.
static void serve(int monitor) {
    for (;;) {
        union {
            char bytes[CMSG_SPACE(sizeof(int))];
            struct cmsghdr header;
        } control;
        char data[1024];
        int guest;
        struct iovec grant = {data, sizeof data};
        struct msghdr message = {
            .msg_iov = &grant, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        if (recvmsg(monitor, &message, 0) <= 0)
            _exit(0);
        memcpy(&guest, CMSG_DATA(&control.header), sizeof guest);
        if (send(monitor, "s", 1, 0) != 1)
            _exit(0);
        while (recv(guest, data, sizeof data, 0) > 0)
            ;
        close(guest);
        if (send(monitor, "r", 1, 0) != 1)
            _exit(0);
    }
}

static void start_server(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        for (int fd = 3; fd < pair[1]; fd++) // whoever keeps an end of another's pair keeps it alive
            close(fd);
        serve(pair[1]);
    }
    close(pair[1]);
    append(&idle, watch(SERVER, pair[0]));
}

static void listen_to_server(struct peer *server) {
    char said;
    if (recv(server->fd, &said, 1, 0) != 1)
        die("server");
    if (said == 'r')
        append(&idle, server);
}

static int open_door(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(door, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (bind(door, (struct sockaddr *)&address, length) != 0 || listen(door, 512) != 0 ||
        getsockname(door, (struct sockaddr *)&address, &length) != 0)
        die("listen");
    printf("127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return door;
}

int main(int argc, char **argv) {
    const char *secret = getenv("GPUFERRY_TOKEN");
    if (argc != 2 || !secret)
        return 2;
    gf_hmac_init(&token, secret, strlen(secret));
    epoll = epoll_create1(0);
    for (int i = atoi(argv[1]); i > 0; i--)
        start_server();
    watch(INPUT, STDIN_FILENO);
    struct peer *door = watch(DOOR, open_door());
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, granted.first && idle.first ? 0 : -1), arrivals = 0;
        while (ready == 0 && granted.first && idle.first)
            hand_over(take_first(&granted), take_first(&idle));
        for (int i = 0; i < ready; i++) {
            struct peer *peer = events[i].data.ptr;
            if (peer->kind == INPUT)
                return 0;
            if (peer->kind == DOOR)
                arrivals = 1;
            else
                (peer->kind == GUEST ? hear : listen_to_server)(peer);
        }
        for (int fd; arrivals && (fd = accept(door->fd, NULL, NULL)) >= 0;) // after those who are further
            greet(fd);
    }
}
