/* What the processes that use the simulated devices tell each other: one small file of this user, mapped by
 * all of them. Nobody cleans up after a process that died: an entry counts only while its owner lives. */
#pragma once
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LIVE_DEVICES = 64, LIVE_PROCESSES = 2048 };

struct live_process {
    struct {
        _Atomic uint64_t memory;     /* bytes */
        _Atomic uint64_t busy_since; /* CLOCK_MONOTONIC; 0: no kernel runs */
    } devices[LIVE_DEVICES];
};

struct live_file {
    _Atomic uint64_t magic;
    struct {
        _Atomic uint64_t busy_ns; /* of kernels that ended, all processes together */
        _Atomic uint64_t lost;    /* set by a test: the device has fallen off the bus */
    } devices[LIVE_DEVICES];
    /* pid and start time, so that a reused pid is somebody else; 0: free */
    _Atomic uint64_t owners[LIVE_PROCESSES];
    struct live_process processes[LIVE_PROCESSES];
};

#define LIVE_CLAIMING (UINT64_C(1) << 63) /* in an owner: the entry still holds somebody else's figures */

/* GPUFERRY_SIM_STATS, else `simdevice` in the runtime folder; made if need be. NULL: it cannot be used. */
struct live_file *live_file_map(void);
/* Whether these bytes of it can be written. False: the file system is full, and to write there would be a
 * SIGBUS. Before Linux 5.14 nobody can tell. */
bool live_has_room(const void *start, size_t size);
/* The folder of the files of processes in jails, beside it. False: there is none. */
bool live_jails_path(char path[PATH_MAX]);
uint64_t live_owner(int pid); /* 0: no such process, or a zombie */
int live_owner_pid(uint64_t owner);
uint64_t live_now_ns(void);
