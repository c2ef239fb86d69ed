# 128 bits of each page, computed on the device. A page is 128 parts of 16 KiB, each read by eight chains, in steps of
# 128 bytes: a chain takes one word from each half of a step, so that chains side by side are the lanes of a vector. One
# thread reads a part in sequence, as a processor likes it, or eight do side by side, as a GPU does. Every step of a
# chain is a bijection in what it reads and in what was before, and so is what is added up at the end, so any change of
# a single word shows; and each word goes into two chains, so that changes of several do not cancel.

cdef enum:
    HASH_SIZE = 16
    HASH_BATCH = 1 << 14        # pages of one launch
    HASH_TRIAL = 8              # pages on which the two shapes are compared
    CHAINS = 8                  # of a part


def _rotate(register: str, by: int) -> str:
    return f"shl.b64 %h, {register}, {by}; shr.u64 %l, {register}, {64 - by}; or.b64 {register}, %h, %l;"


def _load(place: str, offset: int) -> str:
    return f"\n    ld.global.u64 %v, [{place} + {offset}]; ld.global.u64 %w, [{place} + {offset + 64}];"


def _step(chain: int) -> str:
    """A chain takes the two words that are in %v and %w."""
    a, b = f"%a{chain}", f"%b{chain}"
    return f"""
    mov.u64 %t, %w; {_rotate("%t", 23)} xor.b64 %v, %v, %t;
    mov.u64 %t, %v; {_rotate("%t", 41)} add.u64 %w, %w, %t;
    xor.b64 {a}, {a}, %v; mul.lo.u64 {a}, {a}, %m; {_rotate(a, 32)}
    xor.b64 {b}, {b}, %w; mul.lo.u64 {b}, {b}, %n; {_rotate(b, 32)}"""


def _begin(chain: int) -> str:
    """%i is the number of the chain in its page."""
    return f"""
    mul.lo.u64 %t, %i, 0x9E3779B97F4A7C15;
    add.u64 %a{chain}, %t, 0x243F6A8885A308D3;
    add.u64 %b{chain}, %t, 0x13198A2E03707344;"""


def _finish(register: str, total: str) -> str:
    return f"""
    shr.u64 %t, {register}, 29; xor.b64 {register}, {register}, %t; mul.lo.u64 {register}, {register}, %u;
    shr.u64 %t, {register}, 32; xor.b64 {register}, {register}, %t; add.u64 {total}, {total}, {register};"""


def _end(chain: int) -> str:
    return _finish(f"%a{chain}", "%x") + _finish(f"%b{chain}", "%y")


def _add_up(register: str, by: int) -> str:
    """To what each thread of a warp has comes what the one `by` places further has."""
    return f"""
    mov.b64 {{%d, %e}}, {register};
    shfl.sync.down.b32 %d, %d, {by}, 31, 0xffffffff; shfl.sync.down.b32 %e, %e, {by}, 31, 0xffffffff;
    mov.b64 %t, {{%d, %e}}; add.u64 {register}, {register}, %t;"""


def _entry(name: str, body: str) -> str:
    return f"""
.visible .entry {name}(.param .u64 pages, .param .u64 sums)
{{
    .reg .u64 %p, %s, %q, %i, %h, %l, %t, %m, %n, %u, %x, %y, %v, %w, %a<8>, %b<8>;
    .reg .u32 %c, %d, %e, %o;
    .reg .pred %z;
    ld.param.u64 %p, [pages];
    ld.param.u64 %s, [sums];
    mov.u64 %m, 0x9FB21C651E98DF25;
    mov.u64 %n, 0xD6E8FEB86659FD93;
    mov.u64 %u, 0xBF58476D1CE4E5B9;
    mov.u64 %x, 0;
    mov.u64 %y, 0;
    mov.u32 %c, %ctaid.x;{body}
    ret;
}}
"""


def _in_sequence() -> str:
    """One thread for a page."""
    begin = "".join(_begin(chain) + " add.u64 %i, %i, 1;" for chain in range(CHAINS))
    steps = "".join(f"{_load('%p', 8 * chain)}{_step(chain)}" for chain in range(CHAINS))
    end = "".join(map(_end, range(CHAINS)))
    return _entry("in_sequence", f"""
    mul.wide.u32 %t, %c, 8; add.u64 %p, %p, %t; ld.global.u64 %p, [%p];
    mul.wide.u32 %t, %c, 16; add.u64 %s, %s, %t;
    mov.u64 %i, 0;
part:{begin}
    add.u64 %q, %p, 16384;
more:{steps}
    add.u64 %p, %p, 128;
    setp.lt.u64 %z, %p, %q;
    @%z bra more;{end}
    setp.lt.u64 %z, %i, 1024;
    @%z bra part;
    st.global.u64 [%s], %x;
    st.global.u64 [%s + 8], %y;""")


def _side_by_side() -> str:
    """Four blocks of 256 threads for a page, each thread one chain."""
    sums = "".join(_add_up(register, by) for register in ("%x", "%y") for by in (16, 8, 4, 2, 1))
    return _entry("side_by_side", f"""
    shr.u32 %d, %c, 2;
    mul.wide.u32 %t, %d, 8; add.u64 %p, %p, %t; ld.global.u64 %p, [%p];
    mul.wide.u32 %t, %d, 16; add.u64 %s, %s, %t;
    mov.u32 %o, %tid.x;
    and.b32 %d, %c, 3; shl.b32 %d, %d, 8; add.u32 %d, %d, %o; cvt.u64.u32 %i, %d;
    shr.u32 %e, %d, 3; mul.wide.u32 %t, %e, 16384; add.u64 %p, %p, %t; add.u64 %q, %p, 16384;
    and.b32 %e, %d, 7; mul.wide.u32 %t, %e, 8; add.u64 %p, %p, %t;{_begin(0)}
more:{_load("%p", 0)}{_step(0)}
    add.u64 %p, %p, 128;
    setp.lt.u64 %z, %p, %q;
    @%z bra more;{_end(0)}{sums}
    and.b32 %o, %o, 31;
    setp.ne.u32 %z, %o, 0;
    @%z bra done;
    red.global.add.u64 [%s], %x;
    red.global.add.u64 [%s + 8], %y;
done:""")


HASH_KERNELS = (".version 6.4\n.target sm_70\n.address_size 64\n" + _in_sequence() + _side_by_side()).encode()
cdef bytes HASH_TEXT = HASH_KERNELS
cdef const char *HASH_PTX = HASH_TEXT


cdef int prepare_hasher(Session *s) noexcept nogil:
    """Loads the kernels when they are first wanted. The primary context is current."""
    cdef Hasher *h = &s.move.hasher
    cdef int status
    if h.module != NULL:
        return cu.CUDA_SUCCESS
    h.best = -1
    status = cu.cuModuleLoadData(&h.module, HASH_PTX)
    status = status or cu.cuModuleGetFunction(&h.shapes[0], h.module, b"side_by_side")
    status = status or cu.cuModuleGetFunction(&h.shapes[1], h.module, b"in_sequence")
    status = status or prepare_side_stream(s, gpu_at_place(s, 0))
    status = status or cu.cuMemAlloc(&h.pages, HASH_BATCH * sizeof(uint64_t))
    status = status or cu.cuMemAlloc(&h.sums, HASH_BATCH * HASH_SIZE)
    if status != cu.CUDA_SUCCESS:
        drop_hasher(s)
    return status


cdef void drop_hasher(Session *s) noexcept nogil:
    """The primary context is current."""
    cdef Hasher *h = &s.move.hasher
    if h.pages != 0:
        cu.cuMemFree(h.pages)
    if h.sums != 0:
        cu.cuMemFree(h.sums)
    if h.module != NULL:
        cu.cuModuleUnload(h.module)
    memset(h, 0, sizeof(Hasher))


cdef int launch_hash(Session *s, int shape, size_t count) noexcept nogil:
    cdef Hasher *h = &s.move.hasher
    cdef unsigned int blocks = <unsigned int>(count if shape else 4 * count)
    cdef unsigned int threads = 1 if shape else 256
    cdef void *arguments[2]
    arguments[0] = &h.pages
    arguments[1] = &h.sums
    cdef int status = cu.cuMemsetD8Async(h.sums, 0, count * HASH_SIZE, s.move.streams[0])
    return status or cu.cuLaunchKernel(h.shapes[shape], blocks, 1, 1, threads, 1, 1, 0, s.move.streams[0], arguments, NULL)


cdef int choose_shape(Session *s, size_t count) noexcept nogil:
    """Which is faster here, on some of the pages; both are compiled by then."""
    cdef uint64_t least = 0
    cdef uint64_t took
    cdef int shape
    cdef int best = 0
    cdef int status = cu.CUDA_SUCCESS
    count = min(count, <size_t>HASH_TRIAL)
    for shape in range(SHAPES):
        status = status or launch_hash(s, shape, 1) or cu.cuStreamSynchronize(s.move.streams[0])
        took = now()
        status = status or launch_hash(s, shape, count) or cu.cuStreamSynchronize(s.move.streams[0])
        took = now() - took
        if shape == 0 or took < least:
            least = took
            best = shape
    if status == cu.CUDA_SUCCESS:
        s.move.hasher.best = best
    return status


cdef int hash_pages(Session *s, const uint64_t *pages, size_t count, uint8_t *hashes) noexcept nogil:
    """Of pages at these addresses, 16 bytes each. The primary context is current."""
    cdef size_t some
    cdef int status = prepare_hasher(s)
    cdef Hasher *h = &s.move.hasher
    while count > 0 and status == cu.CUDA_SUCCESS:
        some = min(count, <size_t>HASH_BATCH)
        status = cu.cuMemcpyHtoDAsync(h.pages, pages, some * sizeof(uint64_t), s.move.streams[0])
        if h.best < 0:
            status = status or choose_shape(s, some)
        status = status or launch_hash(s, h.best, some)
        status = status or cu.cuMemcpyDtoHAsync(hashes, h.sums, some * HASH_SIZE, s.move.streams[0])
        status = status or cu.cuStreamSynchronize(s.move.streams[0])
        pages += some
        hashes += some * HASH_SIZE
        count -= some
    return status


cdef int prepare_side_stream(Session *s, Gpu *gpu) noexcept nogil:
    """A stream of the device's primary context, which is current, that waits for no other, nor another for it."""
    if s.move.streams[gpu.place] != NULL:
        return cu.CUDA_SUCCESS
    return cu.cuStreamCreate(&s.move.streams[gpu.place], cu.CU_STREAM_NON_BLOCKING)


cdef void drop_side_stream(Session *s, Gpu *gpu) noexcept nogil:
    if s.move.streams[gpu.place] != NULL:
        enter(s, gpu.primary)
        cu.cuStreamDestroy(s.move.streams[gpu.place])
        s.move.streams[gpu.place] = NULL


cdef void end_move(Session *s) noexcept nogil:
    """Takes from the primary contexts, of which the first is current, what moving a session put there."""
    cdef size_t i
    cdef int place
    drop_hasher(s)
    for place in range(s.device.count):
        drop_side_stream(s, gpu_at_place(s, place))
    enter(s, s.device.primary)
    for i in range(s.move.pinned.size()):
        cu.cuMemHostUnregister(<void *>s.move.pinned[0][i])
    s.move.pinned.clear()
    end_copies(s)
