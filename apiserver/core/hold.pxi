# How a session stands still between two frames, so that it can be taken elsewhere: the dispatcher stops, the device is
# drained, nothing more goes to the guest. What is called here is called by another thread than the dispatcher (`move.lock`, DESIGN.md).

cdef enum:
    SIGNAL_EVERY = 1000         # microseconds: between two attempts to wake a dispatcher from recv
    STILL_FIRST = 500000000     # nanoseconds for which a device may be at work before its program goes on for
    GOES_ON_FIRST = 20000       # so many microseconds: both twice as long each time


cdef void wake_up(int number) noexcept nogil:
    """Not to be acted on: recv ends, that is all."""


cdef int prepare_wake() noexcept nogil:
    """Without SA_RESTART, so that recv does end."""
    cdef signal_action action
    memset(&action, 0, sizeof(action))
    action.sa_handler = wake_up
    return sigaction(SIGURG, &action, NULL)


cdef void begin_service(Session *s) noexcept nogil:
    """The dispatcher, before it serves the session."""
    s.state.dispatcher = pthread_self()


cdef void end_service(Session *s) noexcept nogil:
    """Whoever moves the session is done, and finds nothing any more."""
    pthread_mutex_lock(&s.lock)
    s.state.serving = False
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    pthread_mutex_lock(&s.move.lock)
    end_tail(s)
    end_restore(s)
    end_move(s)
    pthread_mutex_unlock(&s.move.lock)


cdef void until_after(timespec *until, long microseconds) noexcept nogil:
    clock_gettime(CLOCK_MONOTONIC, until)
    until.tv_nsec += microseconds * 1000
    if until.tv_nsec >= 1000000000:
        until.tv_nsec -= 1000000000
        until.tv_sec += 1


cdef void stand_still(Session *s) noexcept nogil:
    """The dispatcher, while somebody wants it."""
    cdef timespec until
    leave_line(s)
    pthread_mutex_lock(&s.lock)
    drop_stale(s)
    s.state.held = True
    pthread_cond_broadcast(&s.changed)
    while s.state.holding and not s.state.ending:
        if s.turn.held:
            pthread_mutex_unlock(&s.lock)
            rest_turn(s)
            pthread_mutex_lock(&s.lock)
            until_after(&until, SIGNAL_EVERY)
            pthread_cond_timedwait(&s.changed, &s.lock, &until)
        else:
            wait_briefly(&s.changed, &s.lock)
    s.state.held = False
    pthread_mutex_unlock(&s.lock)


cdef bint hold_session(Session *s, uint64_t patience) noexcept nogil:
    """Makes the dispatcher stand still between two frames; False: it did not come to that in so many nanoseconds."""
    cdef uint64_t deadline = now() + patience
    cdef timespec until
    cdef bint held
    pthread_mutex_lock(&s.lock)
    s.state.holding = True
    ring_turn(s)
    while not s.state.held and not s.state.ending and s.state.serving and now() < deadline:
        # It may be about to enter recv, or have left it: that is why it is told again and again.
        if s.connection.receiving:
            pthread_kill(s.state.dispatcher, SIGURG)
        pthread_cond_broadcast(&s.sending.drained)
        until_after(&until, SIGNAL_EVERY)
        pthread_cond_timedwait(&s.changed, &s.lock, &until)
    held = s.state.held and not s.state.ending
    if not held:
        s.state.holding = False
        pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    return held


cdef void release_session(Session *s) noexcept nogil:
    """The dispatcher goes on."""
    freeze(s, s.connection.following)
    pthread_mutex_lock(&s.lock)
    s.state.holding = False
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)


cdef void leave_session(Session *s) noexcept nogil:
    """The guest's connection is no longer ours: not a byte more, and no end of it."""
    freeze(s, True)
    pthread_mutex_lock(&s.lock)
    s.state.left = True
    pthread_mutex_unlock(&s.lock)
    end_session(s, MOVED, b"moved")


cdef bint let_return(Session *s, uint64_t deadline) noexcept nogil:
    """Functions of the program are under way, and the dispatcher must go on to hear that they have returned. False: it
    does not stand still again."""
    release_session(s)
    while awaits_guest(s) and now() < deadline and not s.state.ending:
        usleep(200)
    return hold_session(s, deadline - now() if now() < deadline else 0)


cdef bint let_go_on(Session *s, unsigned int microseconds, uint64_t deadline) noexcept nogil:
    """What the device is at may wait for what the program does next: a value that it writes, or work on another device.
    False: it does not stand still again."""
    release_session(s)
    usleep(microseconds)
    return hold_session(s, deadline - now() if now() < deadline else 0)


cdef int drain_session(Session *s, uint64_t patience) noexcept nogil:
    """Waits until the device has nothing to do and every reply is written or queued; not ready: it took too long."""
    cdef uint64_t deadline = now() + patience
    cdef uint64_t slice = STILL_FIRST
    cdef uint64_t until = now() + slice
    cdef unsigned int goes_on = GOES_ON_FIRST
    cdef unsigned int pause = 20
    cdef int status
    cdef int tasks
    while True:
        if awaits_guest(s) and not let_return(s, deadline):
            return cu.CUDA_ERROR_NOT_READY
        status = stream_state(s)
        pthread_mutex_lock(&s.lock)
        tasks = s.waiters.tasks
        pthread_mutex_unlock(&s.lock)
        if status == cu.CUDA_SUCCESS and (tasks > 0 or awaits_import(s)):
            status = cu.CUDA_ERROR_NOT_READY
        if status != cu.CUDA_ERROR_NOT_READY or now() >= deadline or s.state.ending:
            break
        if now() >= until:
            if not let_go_on(s, goes_on, deadline):
                return cu.CUDA_ERROR_NOT_READY
            slice *= 2
            goes_on *= 2
            until = now() + slice
        usleep(pause)
        pause = min(2 * pause, 1000)
    if status == cu.CUDA_SUCCESS:
        pthread_mutex_lock(&s.sending.lock)
        forward_output(s)
        pthread_mutex_unlock(&s.sending.lock)
    return status
