# Modules and libraries: images by hash, kernel tables, functions.

cdef enum:
    IMAGE_LIMIT = 1 << 30       # bytes of one image, and of all that are kept
    LOG_SIZE = 16 << 10


cdef Image *new_image() noexcept nogil:
    cdef Image *image = <Image *>calloc(1, sizeof(Image))
    image.kernels = new vector[Kernel]()
    image.variables = new cpp_set[uint64_t]()
    return image


cdef void free_image(Image *image) noexcept nogil:
    del image.kernels
    del image.variables
    free(image)


cdef Bytes *find_bytes(Session *s, const uint8_t *hash) noexcept nogil:
    """s.lock is held."""
    cdef size_t i
    for i in range(s.images.held.size()):
        if memcmp(s.images.held[0][i].hash, hash, GF_HASH_SIZE) == 0:
            return s.images.held[0][i]
    return NULL


cdef Bytes *borrow_bytes(Session *s, const uint8_t *hash, uint64_t size) noexcept nogil:
    """An image all of which is here, until it is given back; NULL: it is not."""
    cdef Bytes *image
    pthread_mutex_lock(&s.lock)
    image = find_bytes(s, hash)
    if image != NULL and (image.received < image.size or image.size != size):
        image = NULL
    if image != NULL:
        image.users += 1
    pthread_mutex_unlock(&s.lock)
    return image


cdef void give_back_bytes(Session *s, Bytes *image) noexcept nogil:
    """One that turned out not to have the hash that was announced is not kept."""
    pthread_mutex_lock(&s.lock)
    image.users -= 1
    if image.loads == 0 and image.users == 0 and not image.verified:
        drop_bytes(s, image)
    pthread_mutex_unlock(&s.lock)


cdef int prove_bytes(Bytes *image, bint is_input, const char **fault) noexcept nogil:
    """Whether a borrowed image has the hash that was announced, and leads the driver to no memory but its own."""
    cdef uint8_t digest[GF_HASH_SIZE]
    if not image.verified:
        gf_sha256(image.data, image.size, digest)
        image.verified = memcmp(digest, image.hash, GF_HASH_SIZE) == 0
    fault[0] = b"its bytes do not have the hash that was announced"
    if image.verified:
        fault[0] = gf_image_fault(image.data, image.size, is_input)
    return cu.CUDA_SUCCESS if fault[0] == NULL else cu.CUDA_ERROR_INVALID_IMAGE


cdef void hold_source(Session *s, Bytes *image) noexcept nogil:
    """Something was made from a borrowed image, and cannot move without it."""
    pthread_mutex_lock(&s.lock)
    image.loads += 1
    pthread_mutex_unlock(&s.lock)


cdef void leave_source(Session *s, Bytes *image) noexcept nogil:
    """Undoes hold_source: what was made from the image is gone."""
    pthread_mutex_lock(&s.lock)
    image.loads -= 1
    if image.loads == 0 and image.data == NULL:
        drop_bytes(s, image)
    pthread_mutex_unlock(&s.lock)


cdef void drop_bytes(Session *s, Bytes *image) noexcept nogil:
    """Lets go of an image; that something was loaded from it stays known. s.lock is held."""
    cdef size_t i
    if image.data != NULL:
        s.images.bytes -= image.size
        unspend(s, image.size)
    free(image.data)
    image.data = NULL
    image.received = 0
    image.verified = False
    if image.loads > 0:
        return
    for i in range(s.images.held.size()):
        if s.images.held[0][i] == image:
            s.images.held[0][i] = s.images.held.back()
            s.images.held.pop_back()
            break
    unspend(s, IMAGE_COST)
    free(image)


cdef bint is_listed(Bytes *image, const uint8_t *hashes, size_t count) noexcept nogil:
    cdef size_t i
    for i in range(count):
        if memcmp(image.hash, hashes + i * GF_HASH_SIZE, GF_HASH_SIZE) == 0:
            return True
    return False


cdef bint loaded_images(Session *s, const uint8_t *also, size_t count, vector[PBytes] *found) noexcept nogil:
    """The images that the session was made from, and others that are here, held until they are let go; False: not
    all that it was made from are here any more."""
    cdef Bytes *image
    cdef size_t i
    cdef bint complete = True
    pthread_mutex_lock(&s.lock)
    for i in range(s.images.held.size()):
        image = s.images.held[0][i]
        if image.data != NULL and (image.loads > 0 or (image.verified and is_listed(image, also, count))):
            image.users += 1
            found.push_back(image)
        complete = complete and (image.loads == 0 or image.data != NULL)
    pthread_mutex_unlock(&s.lock)
    return complete


cdef void let_go(Session *s, vector[PBytes] *found) noexcept nogil:
    cdef size_t i
    pthread_mutex_lock(&s.lock)
    for i in range(found.size()):
        found[0][i].users -= 1
    pthread_mutex_unlock(&s.lock)


cdef bint sooner(Bytes *one, Bytes *other) noexcept nogil:
    """Whether one is let go before the other: a session that has something from an image cannot move without it."""
    return one.loads == 0 if (one.loads == 0) != (other.loads == 0) else one.last_used < other.last_used


cdef bint has_room(Session *s, uint64_t size) noexcept nogil:
    """s.lock is held."""
    return s.images.bytes + size <= IMAGE_LIMIT and affords(s, size + IMAGE_COST)


cdef void make_room(Session *s, uint64_t size) noexcept nogil:
    """Lets go of images that were not used lately. s.lock is held."""
    cdef size_t i
    cdef Bytes *oldest
    cdef Bytes *image
    while not has_room(s, size):
        oldest = NULL
        for i in range(s.images.held.size()):
            image = s.images.held[0][i]
            if image.data != NULL and image.users == 0 and (oldest == NULL or sooner(image, oldest)):
                oldest = image
        if oldest == NULL:
            return
        drop_bytes(s, oldest)


cdef Bytes *hold_bytes(Session *s, Bytes *image, const uint8_t *hash, uint64_t size) noexcept nogil:
    """Memory for an image: for one that was let go, or (NULL) a new one. NULL: there is none. s.lock is held."""
    cdef uint8_t *data = <uint8_t *>malloc(size + 1)
    if data == NULL:
        return NULL
    if image == NULL:
        image = <Bytes *>calloc(1, sizeof(Bytes))
        memcpy(image.hash, hash, GF_HASH_SIZE)
        s.images.held.push_back(image)
        spend(s, IMAGE_COST)
    image.data = data
    image.data[size] = 0        # whatever it holds, text ends
    image.size = size
    s.images.bytes += size
    spend(s, size)
    return image


cdef Bytes *find_or_hold(Session *s, const uint8_t *hash, uint64_t size) noexcept nogil:
    """An image, or memory for it; NULL: there is none. s.lock is held."""
    cdef Bytes *image = find_bytes(s, hash)
    if image != NULL and image.data == NULL and image.size != size:
        return NULL             # what is loaded of it counts as many bytes as it had, until it goes
    if image == NULL or image.data == NULL:
        make_room(s, size)
        image = hold_bytes(s, image, hash, size) if has_room(s, size) else NULL
    if image != NULL:
        s.images.clock += 1
        image.last_used = s.images.clock
    return image


cdef Bytes *receive_bytes(Session *s, const uint8_t *hash, uint64_t size) noexcept nogil:
    """The image that a piece belongs to, until the piece is here; NULL if it is not wanted (any more). A link that is
    completed meanwhile may need room."""
    cdef Bytes *image
    pthread_mutex_lock(&s.lock)
    image = find_or_hold(s, hash, size)
    if image != NULL:
        image.users += 1
    pthread_mutex_unlock(&s.lock)
    return image


cdef void end_receiving(Session *s, Bytes *image) noexcept nogil:
    """Whether it has its hash shows when it is used."""
    pthread_mutex_lock(&s.lock)
    image.users -= 1
    pthread_mutex_unlock(&s.lock)


cdef void hold_made(Session *s, const uint8_t *hash, const void *data, uint64_t size) noexcept nogil:
    """An image that was made here: the guest need not send it to load it."""
    cdef Bytes *image
    pthread_mutex_lock(&s.lock)
    image = find_bytes(s, hash)
    if size <= IMAGE_LIMIT and (image == NULL or image.data == NULL):
        image = find_or_hold(s, hash, size)
    else:
        image = NULL
    if image != NULL:
        memcpy(image.data, data, size)
        image.received = size
        image.verified = True
    pthread_mutex_unlock(&s.lock)


cdef uint32_t param_bytes(gf_kernel_param *params, int count) noexcept nogil:
    cdef uint32_t end = 0
    cdef int i
    for i in range(count):
        end = max(end, params[i].offset + params[i].size)
    return end


cdef int describe(cu.CUdevice device, Kernel *kernel, vector[uint8_t] *table) noexcept nogil:
    """Appends one kernel to the table that the guest gets."""
    cdef gf_kernel entry
    cdef gf_kernel_param param
    cdef vector[gf_kernel_param] params
    cdef const char *name = NULL
    cdef size_t offset, size, length
    cdef size_t i = 0
    cdef int status, value, attribute
    if kernel.function != NULL:
        status = cu.cuFuncGetName(&name, kernel.function)
    else:
        status = cu.cuKernelGetName(&name, kernel.kernel)
    if status != cu.CUDA_SUCCESS:
        return status
    memset(&entry, 0, sizeof(entry))
    while i < 4096:
        if kernel.function != NULL:
            status = cu.cuFuncGetParamInfo(kernel.function, i, &offset, &size)
        else:
            status = cu.cuKernelGetParamInfo(kernel.kernel, i, &offset, &size)
        if status != cu.CUDA_SUCCESS:
            break
        param.offset = <uint32_t>offset
        param.size = <uint32_t>size
        params.push_back(param)
        i += 1
    for attribute in range(GF_FUNCTION_ATTRIBUTE_COUNT):
        value = 0
        if kernel.function != NULL:
            status = cu.cuFuncGetAttribute(&value, <cu.CUfunction_attribute>attribute, kernel.function)
        else:
            status = cu.cuKernelGetAttribute(&value, <cu.CUfunction_attribute>attribute, kernel.kernel, device)
        # An older driver does not know all; but without this one every launch would be refused.
        if status != cu.CUDA_SUCCESS and attribute == cu.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            return status
        entry.attributes[attribute] = value if status == cu.CUDA_SUCCESS else 0
    length = min(strlen(name), <size_t>0xffff)
    entry.name_size = <uint16_t>length
    entry.param_count = <uint16_t>params.size()
    kernel.param_bytes = param_bytes(params.data(), <int>params.size())
    append(table, &entry, sizeof(entry))
    append(table, params.data(), params.size() * sizeof(gf_kernel_param))
    append(table, name, length)
    while table.size() & 3:
        table.push_back(0)
    return cu.CUDA_SUCCESS


cdef void append(vector[uint8_t] *table, const void *data, size_t size) noexcept nogil:
    cdef size_t at = table.size()
    if size > 0:
        table.resize(at + size)
        memcpy(table.data() + at, data, size)


cdef int list_kernels(Image *image) noexcept nogil:
    cdef unsigned int count = 0
    cdef vector[cu.CUfunction] functions
    cdef vector[cu.CUkernel] kernels
    cdef Kernel kernel
    cdef const char *name = NULL
    cdef int status
    cdef unsigned int i
    memset(&kernel, 0, sizeof(kernel))
    if image.module != NULL:
        status = cu.cuModuleGetFunctionCount(&count, image.module)
        if status != cu.CUDA_SUCCESS or count == 0:
            return status
        functions.resize(count)
        status = cu.cuModuleEnumerateFunctions(functions.data(), count, image.module)
        # What is only listed may not be loaded, and then the driver knows no attributes of it.
        for i in range(count):
            status = status or cu.cuFuncGetName(&name, functions[i])
            status = status or cu.cuModuleGetFunction(&functions[i], image.module, name)
    else:
        status = cu.cuLibraryGetKernelCount(&count, image.library)
        if status != cu.CUDA_SUCCESS or count == 0:
            return status
        kernels.resize(count)
        status = cu.cuLibraryEnumerateKernels(kernels.data(), count, image.library)
    for i in range(count):
        if image.module != NULL:
            kernel.function = functions[i]
        else:
            kernel.kernel = kernels[i]
        image.kernels.push_back(kernel)
    return status


cdef int load_image(Bytes *source, Image *image, bint as_module, char *log) noexcept nogil:
    cdef cu.CUjit_option options[2]
    cdef void *values[2]
    options[0] = cu.CU_JIT_ERROR_LOG_BUFFER
    options[1] = cu.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
    values[0] = log
    values[1] = <void *><size_t>LOG_SIZE
    # Relocatable device code: the driver links it, from a wrapper that lists the parts.
    cdef void *link_set = gf_link_set_wrap(source.data, source.size)
    cdef void *data = link_set if link_set != NULL else source.data
    cdef int status
    if as_module:
        status = cu.cuModuleLoadDataEx(&image.module, data, 2, options, values)
    else:
        status = cu.cuLibraryLoadData(&image.library, data, options, values, 2, NULL, NULL, 0)
    free(link_set)
    return status


cdef void unload(Image *image) noexcept nogil:
    if image.parent != NULL:
        return
    if image.module != NULL:
        cu.cuModuleUnload(image.module)
    elif image.library != NULL:
        cu.cuLibraryUnload(image.library)


cdef void run_load(Session *s, Task *task) noexcept nogil:
    """Loads an image on a waiter: compiling may take long."""
    cdef Bytes *source = task.image
    cdef gf_rep_sessionLoadImage *out = <gf_rep_sessionLoadImage *>task.frame.reply
    cdef vector[uint8_t] table
    cdef Piece payload
    cdef char *log = <char *>calloc(1, LOG_SIZE)
    cdef Image *image = new_image()
    cdef int kind = <int>gf_handle_kind(task.handle)
    cdef int status = cu.CUDA_SUCCESS
    cdef gf_req_sessionLoadImage request
    cdef const char *fault = NULL
    cdef uint64_t told
    cdef size_t i
    status = prove_bytes(source, False, &fault)
    if status != cu.CUDA_SUCCESS:
        snprintf(log, LOG_SIZE, b"gpuferry: no image: %s", fault)
    if task.frame.context != NULL:
        status = status or cu.cuCtxSetCurrent(task.frame.context.cu)
    status = status or load_image(source, image, kind == MODULE, log)
    status = status or list_kernels(image)
    if status == cu.CUDA_SUCCESS:
        for i in range(image.kernels.size()):
            status = status or describe(gpu_in(s, task.frame.context).cu, &image.kernels[0][i], &table)
    out.known = 1
    out.kernel_count = <uint32_t>image.kernels.size()
    out.table_size = <uint32_t>table.size()
    out.log_size = 0        # what the compiler has to say is no part of what there is
    if status == cu.CUDA_SUCCESS:
        memcpy(request.hash, source.hash, GF_HASH_SIZE)
        request.handle = task.handle
        request.size = source.size
        told = digest_of(status, out, sizeof(gf_rep_sessionLoadImage), table.data(), table.size())
        hold_source(s, source)
        image.source = source
        spend_apart(s, <int64_t>(source.size + LOAD_COST))
        # From here on its guest may end it, also before it is answered.
        status = put(s, task.handle, kind, &image.base, task.frame.context if kind == MODULE else NULL)
        if status != cu.CUDA_SUCCESS:
            spend_apart(s, -<int64_t>(source.size + LOAD_COST))
            leave_source(s, source)
    task.frame.reply_size = sizeof(gf_rep_sessionLoadImage)
    if status == cu.CUDA_SUCCESS:
        keep(s, &task.frame, &request, sizeof(request), told)
    else:
        unload(image)
        free_image(image)
        table.clear()
        out.kernel_count = out.table_size = 0
    out.log_size = <uint32_t>strnlen(log, LOG_SIZE)
    append(&table, log, out.log_size)
    payload.slot = -1
    payload.data = <uint8_t *>malloc(table.size() + 1)
    if not table.empty():
        memcpy(payload.data, table.data(), table.size())
    free(log)
    cu.cuCtxSetCurrent(s.device.primary.cu)
    give_back_bytes(s, source)
    reply(s, &task.frame, status, table.size(), payload)


cdef void set_form(Function *function, Context *context) noexcept nogil:
    """Whose form of a library's kernel `cu` is; NULL: nobody's."""
    if function.of != NULL:
        if function.previous != NULL:
            function.previous.next = function.next
        else:
            function.of.used = function.next
        if function.next != NULL:
            function.next.previous = function.previous
    function.of = context
    function.previous = NULL
    function.next = NULL
    if context != NULL:
        function.next = context.used
        if context.used != NULL:
            context.used.previous = function
        context.used = function


cdef void forget_forms(Context *context) noexcept nogil:
    """The context goes, and with it the form that kernels of libraries have there."""
    while context.used != NULL:
        set_form(context.used, NULL)


cdef int get_function(Session *s, Frame *f, Function *function) noexcept nogil:
    """A function's own form in a context: a library's kernel has one in each."""
    cdef Image *library = <Image *>function.base.owner
    if function.kernel.function != NULL or function.of == f.context:
        return cu.CUDA_SUCCESS
    await_loads(s)
    cdef int status = cu.cuKernelGetFunction(&function.cu, function.kernel.kernel)
    set_form(function, f.context if status == cu.CUDA_SUCCESS else NULL)
    if status == cu.CUDA_SUCCESS:
        note_use(s, f, &(library.parent if library.parent != NULL else library).base)
    return status


cdef int find_function_or_kernel(Session *s, Frame *f, uint64_t handle, Function **found) noexcept nogil:
    cdef Function *function = <Function *>find_any(s, handle, FUNCTION, KERNEL)
    if function == NULL:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if f.context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    found[0] = function
    return get_function(s, f, function)


cdef int find_kernel(Session *s, Frame *f, uint64_t handle, Function **found) noexcept nogil:
    found[0] = <Function *>find(s, handle, KERNEL)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS


cdef int find_library(Session *s, Frame *f, uint64_t handle, Image **found) noexcept nogil:
    found[0] = <Image *>find(s, handle, LIBRARY)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS


cdef bint text_of(const uint8_t *text, size_t length, char *name, size_t room) noexcept nogil:
    """A name as the driver takes it; none of so many bytes is any variable's."""
    if length == 0 or length >= room:
        return False
    memcpy(name, text, length)
    name[length] = 0
    return True


cdef int find_module(Session *s, Frame *f, uint64_t handle, Image **found) noexcept nogil:
    found[0] = <Image *>find(s, handle, MODULE)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS


cdef int find_module_or_library(Session *s, Frame *f, uint64_t handle, Image **found) noexcept nogil:
    found[0] = <Image *>find_any(s, handle, MODULE, LIBRARY)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS


cdef void link_module(Image *module, Image *library) noexcept nogil:
    """A library's module in a context ends with whichever of the two ends first."""
    module.parent = library
    module.next = library.modules
    if library.modules != NULL:
        library.modules.previous = module
    library.modules = module


cdef void unlink_module(Image *module) noexcept nogil:
    if module.previous != NULL:
        module.previous.next = module.next
    else:
        module.parent.modules = module.next
    if module.next != NULL:
        module.next.previous = module.previous


cdef int drop_function(Session *s, Function *function) noexcept nogil:
    """A function or a kernel: the driver's is its module's or library's."""
    set_form(function, NULL)
    forget(s, &function.base)
    free(function)
    return cu.CUDA_SUCCESS


cdef void unload_bytes(Session *s, Image *image) noexcept nogil:
    """Nothing of the image is handed out or loaded any more."""
    leave_variables(s, image)
    if image.source != NULL:
        spend_apart(s, -<int64_t>(image.source.size + LOAD_COST))
        leave_source(s, image.source)


cdef int drop_image(Session *s, Image *image) noexcept nogil:
    """Unloads, and ends every handle that came from it."""
    cdef Object *owned = first_owned(s, &image.base)
    while owned != NULL:
        drop_object(s, owned)
        owned = first_owned(s, &image.base)
    while image.modules != NULL:
        drop_image(s, image.modules)
    if image.parent != NULL:
        unlink_module(image)
    unload_bytes(s, image)
    forget(s, &image.base)
    if image.base.context != NULL:
        enter(s, image.base.context)
    unload(image)
    free_image(image)
    review_found(s)
    return cu.CUDA_SUCCESS


cdef int retire_image(Session *s, Frame *f, uint64_t handle, int kind) noexcept nogil:
    cdef Image *image = <Image *>find(s, handle, kind)
    if image == NULL:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if image.parent != NULL:
        return cu.CUDA_ERROR_NOT_PERMITTED      # its library's business
    return drop_image(s, image)


cdef int retire_module(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    return retire_image(s, f, handle, MODULE)


cdef int retire_library(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    return retire_image(s, f, handle, LIBRARY)


cdef void begin_images(Session *s) noexcept nogil:
    s.images.clock = 0
    s.images.found.clear()


cdef void drop_all_bytes(Session *s) noexcept nogil:
    """Nothing is loaded from them any more."""
    pthread_mutex_lock(&s.lock)
    while not s.images.held.empty():
        s.images.held.back().loads = 0
        drop_bytes(s, s.images.held.back())
    pthread_mutex_unlock(&s.lock)
