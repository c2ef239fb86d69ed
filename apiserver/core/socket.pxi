# The guest's socket, in clear or with TLS (native/tls/DESIGN.md). What it is makes no difference above.


cdef ssize_t receive_some(Session *s, void *target, size_t size) noexcept nogil:
    """As recv."""
    if s.connection.tls != NULL:
        return gf_tls_receive(s.connection.tls, s.connection.fd, target, size, 0)
    return recv(s.connection.fd, target, size, 0)


cdef ssize_t send_some(Session *s, iovec *parts, int count) noexcept nogil:
    """As sendmsg that does not wait. What was taken is written once `is_written`. s.sending.lock is held."""
    cdef msghdr message
    if s.connection.tls != NULL:
        return gf_tls_send(s.connection.tls, s.connection.fd, parts, count, MSG_DONTWAIT | MSG_NOSIGNAL)
    memset(&message, 0, sizeof(message))
    message.msg_iov = parts
    message.msg_iovlen = count
    return sendmsg(s.connection.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)


cdef bint is_written(Session *s) noexcept nogil:
    """Whether all that the socket was given has left this process. s.sending.lock is held."""
    return s.connection.tls == NULL or not gf_tls_has_output(s.connection.tls)


cdef int write_rest(Session *s) noexcept nogil:
    """1: all is written. 0: the socket takes no more at the moment. -1: it is broken. s.sending.lock is held."""
    if s.connection.tls == NULL:
        return 1
    return gf_tls_flush(s.connection.tls, s.connection.fd, MSG_DONTWAIT | MSG_NOSIGNAL)


cdef void replace_tls(Session *s, gf_tls *tls) noexcept nogil:
    """NULL: in clear. Nobody reads or writes the socket meanwhile."""
    gf_tls_end(s.connection.tls)
    s.connection.tls = tls


cdef size_t save_tls(Session *s, uint8_t *state) noexcept nogil:
    """What whoever has the socket next needs, GF_TLS_STATE_MAX bytes at most; 0: nothing. The session stands still, and
    nothing is written."""
    return 0 if s.connection.tls == NULL else gf_tls_save(s.connection.tls, state)
