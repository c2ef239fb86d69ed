// Programs of several processes: one starts itself again with another role, and both talk over a socket. What
// they print comes in one order, because one of them waits whenever the other works.
#ifndef PROCESSES_H
#define PROCESSES_H

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

extern char **environ;

static int other = -1; // the socket to the other process

static inline pid_t spawn(const char *program, const char *role) {
    int ends[2];
    char number[16];
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        exit(90);
    snprintf(number, sizeof number, "%d", 100 + ends[1]);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 100 + ends[1]);
    char *arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)role, number, NULL};
    if (posix_spawn(&child, program, &actions, NULL, arguments, environ) != 0)
        exit(91);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    other = ends[0];
    return child;
}

// The role of this process; the first one has none.
static inline const char *role_of(int count, char **arguments) {
    if (count < 3)
        return "";
    other = atoi(arguments[2]);
    return arguments[1];
}

static inline void tell(const void *bytes, size_t size) {
    if (send(other, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
        exit(92);
}

static inline void hear(void *bytes, size_t size) {
    if (recv(other, bytes, size, MSG_WAITALL) != (ssize_t)size)
        exit(93);
}

// It is the other's turn, until it says so too.
static inline void go(void) {
    tell("", 1);
}

static inline void await(void) {
    char turn;
    hear(&turn, 1);
}

static inline void tell_descriptor(int descriptor) {
    char space[CMSG_SPACE(sizeof descriptor)] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *beside = CMSG_FIRSTHDR(&message);
    *beside = (struct cmsghdr){CMSG_LEN(sizeof descriptor), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(beside), &descriptor, sizeof descriptor);
    if (sendmsg(other, &message, MSG_NOSIGNAL) != 1)
        exit(94);
}

static inline int hear_descriptor(void) {
    int descriptor = -1;
    char space[CMSG_SPACE(sizeof descriptor)] = {0}, byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(other, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == NULL)
        exit(95);
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

static inline int ended_well(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#endif
