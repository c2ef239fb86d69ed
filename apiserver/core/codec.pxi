# What the codecs of nested types (codecs.h) ask of the engine: handles, addresses and devices of this session.


cdef extern from "wire/codec.h" nogil:
    enum:
        GF_MALFORMED

    cdef struct gf_bytes:
        uint8_t *data
        size_t size

    cdef struct gf_decoder:
        size_t left
        const char *why
        void *session
        void *frame
        int (*handle)(gf_decoder *, unsigned int kinds, uint64_t wire, void **driver) noexcept nogil
        int (*address)(gf_decoder *, uint64_t address, uint64_t size, unsigned int access) noexcept nogil
        int (*device)(gf_decoder *, int wire, int *driver) noexcept nogil
        int (*name)(gf_decoder *, unsigned int kinds, void *driver, uint64_t *wire) noexcept nogil
        int (*ordinal)(gf_decoder *, int driver, int *wire) noexcept nogil
        uint32_t param_bytes

    void gf_bytes_begin(gf_bytes *)
    void gf_bytes_end(gf_bytes *)
    void gf_decoder_begin(gf_decoder *, const void *data, size_t size)
    void gf_decoder_end(gf_decoder *)
    int gf_decoder_done(gf_decoder *)
    int gf_take_plain(gf_decoder *, uint64_t count, uint64_t size, bint nullable, void **found)
    int gf_room(gf_decoder *, uint64_t count, uint64_t size, bint told, void **found)
    int gf_return_plain(gf_bytes *, const void *values, uint64_t count, uint64_t size)
    uint64_t gf_plus(uint64_t, uint64_t)
    uint64_t gf_minus(uint64_t, uint64_t)
    uint64_t gf_times(uint64_t, uint64_t)


cdef int codec_handle(gf_decoder *d, unsigned int kinds, uint64_t wire, void **driver) noexcept nogil:
    cdef Session *s = <Session *>d.session
    cdef Frame *f = <Frame *>d.frame
    cdef Object *object
    cdef Stream *stream
    cdef Event *event
    cdef Function *function
    cdef Array *array
    cdef Mipmap *mipmap
    cdef int status
    if kinds & 1 << STREAM:
        status = use_stream(s, f, wire, &stream)
        driver[0] = <void *>stream.cu if status == cu.CUDA_SUCCESS else NULL
        return status
    if kinds & 1 << EVENT:
        status = find_event(s, f, wire, &event)
        driver[0] = <void *>event.cu if status == cu.CUDA_SUCCESS else NULL
        return status
    if kinds & 1 << FUNCTION:
        status = find_function_or_kernel(s, f, wire, &function)
        if status == cu.CUDA_SUCCESS:
            driver[0] = <void *>function.cu
            d.param_bytes = function.kernel.param_bytes
        return status
    if kinds & 1 << KERNEL:
        status = find_kernel(s, f, wire, &function)
        if status == cu.CUDA_SUCCESS:
            driver[0] = <void *>function.kernel.kernel
            d.param_bytes = function.kernel.param_bytes
        return status
    if kinds & 1 << CONTEXT:
        object = find(s, wire, CONTEXT)
        if object == NULL:
            return cu.CUDA_ERROR_INVALID_CONTEXT
        driver[0] = <void *>(<Context *>object).cu
        return cu.CUDA_SUCCESS
    if kinds & 1 << ARRAY:
        status = find_array(s, f, wire, &array)
        driver[0] = <void *>array.cu if status == cu.CUDA_SUCCESS else NULL
        return note_lack(s, f, status)
    if kinds & 1 << MIPMAPPED_ARRAY:
        status = find_mipmapped_array(s, f, wire, &mipmap)
        driver[0] = <void *>mipmap.cu if status == cu.CUDA_SUCCESS else NULL
        return note_lack(s, f, status)
    return plain_handle(s, kinds, wire, driver)


cdef int codec_name(gf_decoder *d, unsigned int kinds, void *driver, uint64_t *wire) noexcept nogil:
    """No answer that is carried names an object; the guest knows its own."""
    return cu.CUDA_ERROR_NOT_SUPPORTED


cdef int codec_address(gf_decoder *d, uint64_t address, uint64_t size, unsigned int access) noexcept nogil:
    if may_touch(<Session *>d.session, address, size):
        return cu.CUDA_SUCCESS
    return note_lack(<Session *>d.session, <Frame *>d.frame, cu.CUDA_ERROR_INVALID_VALUE)


cdef int note_lack(Session *s, Frame *f, int status) noexcept nogil:
    """What a frame names that was kept may have ended since: its handler says what a session that arrives has then."""
    f.lacking = f.lacking or (status != cu.CUDA_SUCCESS and s.arrival.restoring)
    return cu.CUDA_SUCCESS if f.lacking else status


cdef int codec_device(gf_decoder *d, int wire, int *driver) noexcept nogil:
    cdef Session *s = <Session *>d.session
    if not has_device(s, wire):
        return cu.CUDA_ERROR_INVALID_DEVICE
    driver[0] = device_of(s, wire)
    return cu.CUDA_SUCCESS


cdef int codec_ordinal(gf_decoder *d, int driver, int *wire) noexcept nogil:
    cdef Session *s = <Session *>d.session
    cdef int number
    wire[0] = 0
    for number in range(s.device.visible):
        if device_of(s, number) == driver:
            wire[0] = number
    return cu.CUDA_SUCCESS


cdef void begin_codec(Session *s, Frame *f, gf_decoder *d, size_t skip) noexcept nogil:
    """Reads what follows the first `skip` bytes of the request; gf_decoder_end gives back what it took."""
    gf_decoder_begin(d, f.body + skip, f.size - skip)
    f.lacking = False
    d.session = s
    d.frame = f
    d.handle = codec_handle
    d.address = codec_address
    d.device = codec_device
    d.name = codec_name
    d.ordinal = codec_ordinal


cdef int codec_status(Session *s, Frame *f, gf_decoder *d, int status) noexcept nogil:
    """A decoder's result as a handler returns it: an encoding that is wrong ends the session."""
    return malformed(s, f, d.why) if status == GF_MALFORMED else status


cdef int answer_behind(Session *s, Frame *f, int status, gf_bytes *behind) noexcept nogil:
    """Replies with what the codecs wrote behind the reply struct; a call that failed is answered as ever."""
    cdef Piece piece
    if status != cu.CUDA_SUCCESS:
        return status
    piece.slot = -1
    piece.data = <uint8_t *>malloc(behind.size + 1)
    if piece.data == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    memcpy(piece.data, behind.data, behind.size)
    reply(s, f, status, behind.size, piece)
    return DEFERRED
