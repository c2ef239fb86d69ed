/* The send ring, and the writer's role: one thread at a time writes to the connection. */
#pragma once
#include <sys/uio.h>

#include "channel.h"

/* Appends a frame to the ring, with `rows` behind its parts unless NULL. `flush`: and writes it at once; else
 * the I/O thread does. Waits while the ring is full. */
CUresult gf_writer_append(uint16_t op, uint32_t request, const struct iovec *parts, int count,
                          const struct gf_rows *rows, bool flush);
/* A large payload goes from the caller's memory straight to the socket, behind all that is in the ring. */
CUresult gf_writer_direct(uint16_t op, const void *request, size_t size, const struct gf_rows *rows);

/* Empties the ring unless another thread does so already. With send_lock held, which it drops while writing.
 */
void gf_writer_flush(void);
/* Writes our last frame on this connection, MOVED. With send_lock held, which it drops while writing. */
void gf_writer_leave(void);
