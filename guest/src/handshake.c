#include "handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transport.h"

bool gf_random_bytes(uint8_t *data, size_t size) {
    /* A program may have no /dev, or no descriptor left. */
    long got = syscall(SYS_getrandom, data, size, 0);
    if (got >= 0 || errno != ENOSYS) {
        return got == (long)size;
    }
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool fine = fd >= 0 && read(fd, data, size) == (ssize_t)size;
    if (fd >= 0) {
        close(fd);
    }
    return fine;
}

void *gf_read_frame(struct gf_transport *from, struct gf_header *header, int timeout_ms) {
    if (gf_transport_read(from, header, sizeof *header, timeout_ms) != 0) {
        return NULL;
    }
    errno = EPROTO;
    if (header->size < sizeof *header || header->size > GF_FRAME_MAX) {
        return NULL;
    }
    size_t size = header->size - sizeof *header;
    char *body = malloc(size + 1);
    if (body == NULL || gf_transport_read(from, body, size, timeout_ms) != 0) {
        free(body);
        return NULL;
    }
    body[size] = '\0';
    return body;
}

const char *gf_handshake_cause(void) {
    return errno == 0        ? "it closed the connection during the handshake"
           : errno == EPROTO ? "it does not speak gpuferry's protocol"
                             : gf_transport_cause(errno);
}
