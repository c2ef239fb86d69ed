# Whether memory holds an address within certain ranges, looked for on the device: each aligned word of a page is compared.

def _points() -> str:
    """A block for a page. Words are compared with the hull of all ranges first, in which few lie."""
    return """
.version 6.4
.target sm_70
.address_size 64
.visible .entry points(.param .u64 pages, .param .u64 ranges, .param .u32 count, .param .u64 low, .param .u64 span,
                       .param .u64 found)
{
    .reg .u64 %p, %q, %r, %s, %l, %m, %v, %d, %f, %step;
    .reg .u32 %c, %n, %t;
    .reg .pred %z;
    ld.param.u64 %p, [pages];
    ld.param.u64 %l, [low];
    ld.param.u64 %m, [span];
    ld.param.u64 %f, [found];
    mov.u32 %c, %ctaid.x;
    mul.wide.u32 %d, %c, 8; add.u64 %p, %p, %d; ld.global.u64 %p, [%p];
    add.u64 %q, %p, 2097152;
    mov.u32 %t, %tid.x; mul.wide.u32 %d, %t, 8; add.u64 %p, %p, %d;
    mov.u32 %t, %ntid.x; mul.wide.u32 %step, %t, 8;
more:
    ld.global.u64 %v, [%p];
    sub.u64 %d, %v, %l;
    setp.gt.u64 %z, %d, %m;
    @%z bra next;
    ld.param.u64 %r, [ranges];
    ld.param.u32 %n, [count];
each:
    ld.global.u64 %d, [%r]; ld.global.u64 %s, [%r + 8];
    sub.u64 %d, %v, %d;
    setp.gt.u64 %z, %d, %s;
    @%z bra other;
    st.global.u64 [%f], %v;
    bra done;
other:
    add.u64 %r, %r, 16;
    sub.u32 %n, %n, 1;
    setp.ne.u32 %z, %n, 0;
    @%z bra each;
next:
    add.u64 %p, %p, %step;
    setp.lt.u64 %z, %p, %q;
    @%z bra more;
done:
    ret;
}
"""


cdef bytes POINTS_TEXT = _points().encode()
cdef const char *POINTS_PTX = POINTS_TEXT


cdef uint64_t hull(const uint64_t *ranges, size_t count, uint64_t *span) noexcept nogil:
    """The first address of these ranges, and how far from it the last one is."""
    cdef uint64_t low = ranges[0]
    cdef uint64_t high = 0
    cdef size_t i
    for i in range(count):
        low = min(low, ranges[2 * i])
        high = max(high, ranges[2 * i] + ranges[2 * i + 1])
    span[0] = high - low
    return low


cdef uint64_t pointer_into(const uint8_t *data, size_t size, size_t step, const uint64_t *ranges,
                           size_t count) noexcept nogil:
    """The first word in host memory that lies in one of these ranges; 0: none. A range is its begin and how far from
    there its last address is."""
    cdef uint64_t span
    cdef uint64_t low = hull(ranges, count, &span)
    cdef size_t at = 0
    cdef size_t i
    cdef uint64_t word
    while at + sizeof(word) <= size:
        memcpy(&word, data + at, sizeof(word))
        if word - low <= span:      # few words do
            for i in range(count):
                if word - ranges[2 * i] <= ranges[2 * i + 1]:
                    return word
        at += step
    return 0


cdef int pointer_on_device(Session *s, const uint64_t *pages, size_t count, const uint64_t *ranges, size_t several,
                           uint64_t *word) noexcept nogil:
    """Likewise in pages at these addresses. The primary context is current."""
    cdef cu.CUmodule module = NULL
    cdef cu.CUfunction points
    cdef cu.CUdeviceptr memory = 0          # what is found, ranges, pages
    cdef cu.CUdeviceptr places[3]
    cdef cu.CUstream stream
    cdef void *arguments[6]
    cdef uint64_t span
    cdef uint64_t low = hull(ranges, several, &span)
    cdef uint32_t number = <uint32_t>several
    cdef size_t size = (1 + 2 * several + count) * sizeof(uint64_t)
    cdef int status = prepare_side_stream(s, gpu_at_place(s, 0))
    stream = s.move.streams[0]
    status = status or cu.cuModuleLoadData(&module, POINTS_PTX)
    status = status or cu.cuModuleGetFunction(&points, module, b"points")
    status = status or cu.cuMemAlloc(&memory, size)
    if status == cu.CUDA_SUCCESS:
        places[0] = memory
        places[1] = memory + sizeof(uint64_t)
        places[2] = places[1] + 2 * several * sizeof(uint64_t)
        arguments[0] = &places[2]
        arguments[1] = &places[1]
        arguments[2] = &number
        arguments[3] = &low
        arguments[4] = &span
        arguments[5] = &places[0]
        word[0] = 0
        status = cu.cuMemcpyHtoDAsync(places[0], word, sizeof(uint64_t), stream)
        status = status or cu.cuMemcpyHtoDAsync(places[1], ranges, 2 * several * sizeof(uint64_t), stream)
        status = status or cu.cuMemcpyHtoDAsync(places[2], pages, count * sizeof(uint64_t), stream)
        status = status or cu.cuLaunchKernel(points, <unsigned int>count, 1, 1, 256, 1, 1, 0, stream, arguments, NULL)
        status = status or cu.cuMemcpyDtoHAsync(word, places[0], sizeof(uint64_t), stream)
        status = status or cu.cuStreamSynchronize(stream)
    if memory != 0:
        cu.cuMemFree(memory)
    if module != NULL:
        cu.cuModuleUnload(module)
    return status
