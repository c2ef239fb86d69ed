/* The stream socket below the channel. */
#pragma once
#include <stddef.h>

/* Connects to "host:port", "[v6]:port" or "unix:/path". Returns the descriptor, or -1 with the cause in
 * `why`. */
int gf_transport_connect(const char *address, char *why, size_t why_size);
/* Exactly `size` bytes before the deadline (milliseconds); 0, or -1 with errno (0: the peer closed). */
int gf_transport_read(int fd, void *data, size_t size, int timeout_ms);
int gf_transport_write(int fd, const void *data, size_t size);
