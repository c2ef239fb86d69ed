# What the nodes of graphs do: kernels, fills, copies, events, calls to the guest, operations on words of memory. Each is
# added, or changed in the executable graph; graphs.pxi says what becomes of those that cannot be made.

cdef enum:
    BATCH_MAX = 256             # operations on words of memory in a node


# Kernels

cdef int kernel_params(Session *s, Frame *f, uint64_t handle, const void *grid_and_block, uint32_t shared,
                       size_t *size, const uint8_t *packed, void **extra,
                       cu.CUDA_KERNEL_NODE_PARAMS *params) noexcept nogil:
    cdef uint32_t shape[6]              # a frame's numbers are not aligned
    cdef Function *function = NULL
    cdef int status = find_function_or_kernel(s, f, handle, &function)
    if status != cu.CUDA_SUCCESS:
        return status
    if size[0] < function.kernel.param_bytes:
        return cu.CUDA_ERROR_INVALID_VALUE
    memset(params, 0, sizeof(cu.CUDA_KERNEL_NODE_PARAMS))
    params.func = function.cu
    memcpy(shape, grid_and_block, sizeof(shape))
    params.gridDimX = shape[0]
    params.gridDimY = shape[1]
    params.gridDimZ = shape[2]
    params.blockDimX = shape[3]
    params.blockDimY = shape[4]
    params.blockDimZ = shape[5]
    params.sharedMemBytes = shared
    extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER
    extra[1] = <void *>packed
    extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE
    extra[3] = size
    extra[4] = CU_LAUNCH_PARAM_END
    params.extra = extra
    return cu.CUDA_SUCCESS


cdef int sessionGraphKernel_call(Session *s, Frame *f, gf_req_sessionGraphKernel *q, GraphExec *g,
                                 const uint8_t *packed) noexcept nogil:
    cdef cu.CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES]
    cdef cu.CUDA_KERNEL_NODE_PARAMS params
    cdef cu.CUgraphNode node = NULL
    cdef void *extra[5]
    cdef size_t size = q.params
    cdef uint32_t i
    cdef int status = may_add(s, g, NODE_COST + size)
    if status != cu.CUDA_SUCCESS:
        return status
    status = launch_attributes(s, f, packed + size, q.attributes, attributes)
    if status == ENDED:
        return status
    status = status or kernel_params(s, f, q.function, &q.grid, q.shared, &size, packed, extra, &params)
    status = status or cu.cuGraphAddKernelNode(&node, into(g), NULL, 0, &params)
    for i in range(q.attributes):
        status = status or cu.cuGraphKernelNodeSetAttribute(node, attributes[i].id, &attributes[i].value)
    status = added(s, g, status, node)
    if status == cu.CUDA_SUCCESS:
        (g.filled if g.filled != NULL else &g.nodes.back()).attributes = digest_of_attributes(packed + size, q.attributes)
    if status == cu.CUDA_SUCCESS and g.filled == NULL:
        charge_beside(s, g, size)
    return status


cdef bint has_others(Place *kernel, const uint8_t *attributes, uint32_t count) noexcept nogil:
    """Whether a kernel was added with other attributes. What is none the driver refuses."""
    return kernel.attributes != 0 and kernel.attributes != digest_of_attributes(attributes, count)


cdef uint64_t digest_of_attributes(const uint8_t *attributes, uint32_t count) noexcept nogil:
    return digest_of(0, attributes, count * sizeof(gf_launch_attribute), NULL, 0)


cdef int sessionGraphSetKernel_call(Session *s, Frame *f, gf_req_sessionGraphSetKernel *q, GraphExec *g,
                                    const uint8_t *packed) noexcept nogil:
    cdef cu.CUDA_KERNEL_NODE_PARAMS params
    cdef cu.CUgraphNode node
    cdef void *extra[5]
    cdef size_t size = q.params
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS:
        return status
    if not is_made_anew(g) and has_others(&g.nodes[0][q.node], packed + size, q.attributes):
        status = take_back(s, g)
    if status != cu.CUDA_SUCCESS or is_made_anew(g):
        return status or make_anew(s, f, g, q.node, GF_OP_sessionGraphKernel)
    status = kernel_params(s, f, q.function, &q.grid, q.shared, &size, packed, extra, &params)
    return changed(s, status or cu.cuGraphExecKernelNodeSetParams(g.exec, node, &params))


# Fills, and copies of rows as guests of before 0.2 send them (with a source)

cdef struct Rows:
    uint64_t target
    uint64_t target_pitch
    uint64_t source
    uint64_t source_pitch
    uint64_t width              # in elements
    uint64_t rows
    uint32_t value
    uint32_t element


cdef bint is_nowhere(Session *s, uint64_t target) noexcept nogil:
    """Nothing of the session's is there: a fill may have such a target for as long as it does not run. In a session that
    is being restored, memory of other processes may yet come."""
    if s.arrival.restoring and not s.graphs.complete:
        return False
    return not may_touch(s, target, 1) and not is_mapped(s, last_page(s), 1)


cdef int check_rows(Session *s, const Rows *r) noexcept nogil:
    cdef uint64_t bytes = gf_times(r.width, r.element)
    cdef uint64_t gaps = r.rows - 1
    if r.element == 3 or rows_overlap(r.target_pitch, bytes, r.rows) or r.target == 0:
        return cu.CUDA_ERROR_INVALID_VALUE
    if r.source == 0 and is_nowhere(s, r.target):
        return cu.CUDA_SUCCESS
    if not may_touch(s, r.target, gf_plus(gf_times(r.target_pitch, gaps), bytes)):
        return cu.CUDA_ERROR_INVALID_VALUE
    if r.source == 0:
        return cu.CUDA_SUCCESS
    if r.element != 1 or rows_overlap(r.source_pitch, bytes, r.rows) \
            or not may_touch(s, r.source, gf_plus(gf_times(r.source_pitch, gaps), bytes)):
        return cu.CUDA_ERROR_INVALID_VALUE
    return cu.CUDA_SUCCESS


cdef void copy_params(const Rows *r, cu.CUDA_MEMCPY3D *copy) noexcept nogil:
    memset(copy, 0, sizeof(cu.CUDA_MEMCPY3D))
    copy.srcMemoryType = cu.CU_MEMORYTYPE_DEVICE
    copy.dstMemoryType = cu.CU_MEMORYTYPE_DEVICE
    copy.srcDevice = r.source
    copy.srcPitch = r.source_pitch
    copy.srcHeight = r.rows
    copy.dstDevice = r.target
    copy.dstPitch = r.target_pitch
    copy.dstHeight = r.rows
    copy.WidthInBytes = r.width
    copy.Height = r.rows
    copy.Depth = 1


cdef void fill_params(Session *s, const Rows *r, cu.CUDA_MEMSET_NODE_PARAMS *fill) noexcept nogil:
    """What is nowhere is where the window has nothing either: memory of the driver's own may be at the program's address."""
    memset(fill, 0, sizeof(cu.CUDA_MEMSET_NODE_PARAMS))
    fill.dst = last_page(s) if is_nowhere(s, r.target) else r.target
    fill.pitch = r.target_pitch
    fill.value = r.value
    fill.elementSize = r.element
    fill.width = r.width
    fill.height = r.rows


cdef int sessionGraphRows_call(Session *s, Frame *f, gf_req_sessionGraphRows *q, GraphExec *g) noexcept nogil:
    cdef Rows rows
    cdef cu.CUDA_MEMCPY3D copy
    cdef cu.CUDA_MEMSET_NODE_PARAMS fill
    cdef cu.CUgraphNode node = NULL
    cdef int status = may_add(s, g, NODE_COST)
    if status != cu.CUDA_SUCCESS:
        return status
    memcpy(&rows, &q.target, sizeof(Rows))
    status = check_rows(s, &rows)
    if status == cu.CUDA_SUCCESS and rows.source != 0:
        copy_params(&rows, &copy)
        status = cu.cuGraphAddMemcpyNode(&node, into(g), NULL, 0, &copy, f.context.cu)
    elif status == cu.CUDA_SUCCESS:
        fill_params(s, &rows, &fill)
        status = cu.cuGraphAddMemsetNode(&node, into(g), NULL, 0, &fill, f.context.cu)
    return added(s, g, status, node)


cdef int set_copy(Session *s, Frame *f, GraphExec *g, uint32_t number, uint16_t op, cu.CUgraphNode node,
                  const cu.CUDA_MEMCPY3D *copy) noexcept nogil:
    """The driver changes no copy of several rows in an executable graph: then that is made anew."""
    cdef int status = cu.cuGraphExecMemcpyNodeSetParams(g.exec, node, copy, f.context.cu)
    if status != cu.CUDA_ERROR_INVALID_VALUE:
        return status
    return take_back(s, g) or make_anew(s, f, g, number, op)


cdef int sessionGraphSetRows_call(Session *s, Frame *f, gf_req_sessionGraphSetRows *q, GraphExec *g) noexcept nogil:
    cdef Rows rows
    cdef cu.CUDA_MEMCPY3D copy
    cdef cu.CUDA_MEMSET_NODE_PARAMS fill
    cdef cu.CUgraphNode node
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS:
        return status
    if is_made_anew(g):
        return make_anew(s, f, g, q.node, GF_OP_sessionGraphRows)
    memcpy(&rows, &q.target, sizeof(Rows))
    status = check_rows(s, &rows)
    if status == cu.CUDA_SUCCESS and rows.source != 0:
        copy_params(&rows, &copy)
        status = set_copy(s, f, g, q.node, GF_OP_sessionGraphRows, node, &copy)
    elif status == cu.CUDA_SUCCESS:
        fill_params(s, &rows, &fill)
        status = cu.cuGraphExecMemsetNodeSetParams(g.exec, node, &fill, f.context.cu)
    return changed(s, status)


# Copies: boxes, each end in an array or in memory

cdef struct BoxEnd:
    uint64_t array              # its handle, or 0
    uint64_t at                 # in memory an address, in an array the byte of its row
    uint64_t y
    uint64_t z
    uint64_t pitch
    uint64_t height             # rows from layer to layer


cdef struct Box:
    BoxEnd target
    BoxEnd source
    uint64_t width
    uint64_t rows
    uint64_t layers


cdef bint end_is_there(Session *s, const BoxEnd *end, Array *array, const Box *box) noexcept nogil:
    cdef uint64_t layers = gf_times(gf_times(end.pitch, end.height), box.layers - 1)
    cdef uint64_t rows = gf_plus(gf_times(end.pitch, box.rows - 1), box.width)
    if array != NULL:
        return box_lies_in(array, end.at, end.y, end.z, box.width, box.rows) and box.layers <= array.layers - end.z
    if rows_overlap(end.pitch, box.width, gf_times(box.rows, box.layers)) or (box.layers > 1 and end.height < box.rows):
        return False
    return may_touch(s, end.at, gf_plus(layers, rows))


cdef int box_params(Session *s, Frame *f, const Box *box, cu.CUDA_MEMCPY3D *copy) noexcept nogil:
    cdef Array *target = NULL
    cdef Array *source = NULL
    cdef int status = cu.CUDA_SUCCESS
    if box.target.array != 0:
        status = find_array(s, f, box.target.array, &target)
    if box.source.array != 0:
        status = status or find_array(s, f, box.source.array, &source)
    if status != cu.CUDA_SUCCESS:
        return status
    if not end_is_there(s, &box.target, target, box) or not end_is_there(s, &box.source, source, box):
        return cu.CUDA_ERROR_INVALID_VALUE
    box_copy(copy, box.width, box.rows)
    copy.Depth = box.layers
    if source != NULL:
        from_array(copy, source, box.source.at, box.source.y, box.source.z)
    else:
        copy.srcMemoryType = cu.CU_MEMORYTYPE_DEVICE
        copy.srcDevice = box.source.at
        copy.srcPitch = box.source.pitch
        copy.srcHeight = max(box.source.height, box.rows)
    if target != NULL:
        to_array(copy, target, box.target.at, box.target.y, box.target.z)
    else:
        copy.dstMemoryType = cu.CU_MEMORYTYPE_DEVICE
        copy.dstDevice = box.target.at
        copy.dstPitch = box.target.pitch
        copy.dstHeight = max(box.target.height, box.rows)
    return cu.CUDA_SUCCESS


cdef int sessionGraphBox_call(Session *s, Frame *f, gf_req_sessionGraphBox *q, GraphExec *g) noexcept nogil:
    cdef Box box
    cdef cu.CUDA_MEMCPY3D copy
    cdef cu.CUgraphNode node = NULL
    cdef int status = may_add(s, g, NODE_COST)
    if status != cu.CUDA_SUCCESS:
        return status
    memcpy(&box, &q.target_array, sizeof(Box))
    status = box_params(s, f, &box, &copy)
    return added(s, g, status or cu.cuGraphAddMemcpyNode(&node, into(g), NULL, 0, &copy, f.context.cu), node)


cdef int sessionGraphSetBox_call(Session *s, Frame *f, gf_req_sessionGraphSetBox *q, GraphExec *g) noexcept nogil:
    cdef Box box
    cdef cu.CUDA_MEMCPY3D copy
    cdef cu.CUgraphNode node
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS:
        return status
    if is_made_anew(g):
        return make_anew(s, f, g, q.node, GF_OP_sessionGraphBox)
    memcpy(&box, &q.target_array, sizeof(Box))
    status = box_params(s, f, &box, &copy)
    return changed(s, status or set_copy(s, f, g, q.node, GF_OP_sessionGraphBox, node, &copy))


# Nodes that need no more than a subject: an event, or the number of a call to the guest

cdef int sessionGraphNode_call(Session *s, Frame *f, gf_req_sessionGraphNode *q, GraphExec *g) noexcept nogil:
    cdef cu.CUDA_HOST_NODE_PARAMS host
    cdef Event *event = NULL
    cdef cu.CUgraphNode node = NULL
    cdef int status = may_add(s, g, NODE_COST)
    if status != cu.CUDA_SUCCESS:
        return status
    if q.kind == GF_GRAPH_NODE_EMPTY:
        return added(s, g, cu.cuGraphAddEmptyNode(&node, into(g), NULL, 0), node)
    if q.kind == GF_GRAPH_NODE_HOST:
        host_params(q.subject, &host)
        return added(s, g, cu.cuGraphAddHostNode(&node, into(g), NULL, 0, &host), node)
    status = find_plain_event(s, f, q.subject, &event)
    if status == cu.CUDA_SUCCESS and q.kind == GF_GRAPH_NODE_RECORD:
        status = cu.cuGraphAddEventRecordNode(&node, into(g), NULL, 0, event.cu)
    elif status == cu.CUDA_SUCCESS:
        status = cu.cuGraphAddEventWaitNode(&node, into(g), NULL, 0, event.cu)
    status = added(s, g, status, node)
    if status == cu.CUDA_SUCCESS and q.kind == GF_GRAPH_NODE_RECORD:
        if g.filled == NULL:
            g.records.push_back(g.nodes.size() - 1)
        (g.filled if g.filled != NULL else &g.nodes.back()).event = q.subject
    return status


cdef int sessionGraphSetNode_call(Session *s, Frame *f, gf_req_sessionGraphSetNode *q, GraphExec *g) noexcept nogil:
    cdef cu.CUDA_HOST_NODE_PARAMS host
    cdef Event *event = NULL
    cdef cu.CUgraphNode node
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS or q.kind == GF_GRAPH_NODE_EMPTY:
        return status
    if q.kind == GF_GRAPH_NODE_ENABLE or q.kind == GF_GRAPH_NODE_DISABLE:
        if g.exec != NULL and not g.nodes[0][q.node].hollow:
            status = cu.cuGraphNodeSetEnabled(g.exec, node, q.kind == GF_GRAPH_NODE_ENABLE)
        if status == cu.CUDA_SUCCESS:
            g.nodes[0][q.node].off = q.kind == GF_GRAPH_NODE_DISABLE
        return changed(s, status)
    if is_made_anew(g):
        return make_anew(s, f, g, q.node, GF_OP_sessionGraphNode)
    if q.kind == GF_GRAPH_NODE_HOST:
        host_params(q.subject, &host)
        return changed(s, cu.cuGraphExecHostNodeSetParams(g.exec, node, &host))
    status = find_plain_event(s, f, q.subject, &event)
    if status == cu.CUDA_SUCCESS and q.kind == GF_GRAPH_NODE_RECORD:
        status = cu.cuGraphExecEventRecordNodeSetEvent(g.exec, node, event.cu)
        if status == cu.CUDA_SUCCESS:
            g.nodes[0][q.node].event = q.subject
    elif status == cu.CUDA_SUCCESS:
        status = cu.cuGraphExecEventWaitNodeSetEvent(g.exec, node, event.cu)
    return changed(s, status)


# Operations on words of memory

cdef int batch_params(Session *s, Frame *f, const uint8_t *operations, uint32_t count,
                      cu.CUstreamBatchMemOpParams *words, cu.CUDA_BATCH_MEM_OP_NODE_PARAMS *params) noexcept nogil:
    cdef gf_memory_operation word
    cdef bint waits, wide
    cdef uint32_t i
    memset(words, 0, count * sizeof(cu.CUstreamBatchMemOpParams))
    for i in range(count):
        memcpy(&word, operations + i * sizeof(word), sizeof(word))
        words[i].operation = <cu.CUstreamBatchMemOpType>word.operation
        words[i].waitValue.address = word.address
        words[i].waitValue.value64 = word.value
        words[i].waitValue.flags = word.flags
        wide = word.operation == cu.CU_STREAM_MEM_OP_WAIT_VALUE_64 or word.operation == cu.CU_STREAM_MEM_OP_WRITE_VALUE_64
        waits = word.operation == cu.CU_STREAM_MEM_OP_WAIT_VALUE_32 or word.operation == cu.CU_STREAM_MEM_OP_WAIT_VALUE_64
        if word.operation == cu.CU_STREAM_MEM_OP_BARRIER or word.operation == cu.CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            continue
        if not waits and not may_write(s, word.address, 8 if wide else 4):
            return cu.CUDA_ERROR_INVALID_VALUE
        if not may_touch(s, word.address, 8 if wide else 4):
            return cu.CUDA_ERROR_INVALID_VALUE
    memset(params, 0, sizeof(cu.CUDA_BATCH_MEM_OP_NODE_PARAMS))
    params.ctx = f.context.cu
    params.count = count
    params.paramArray = words
    return cu.CUDA_SUCCESS


cdef int sessionGraphBatch_call(Session *s, Frame *f, gf_req_sessionGraphBatch *q, GraphExec *g,
                                const uint8_t *operations) noexcept nogil:
    cdef cu.CUstreamBatchMemOpParams words[BATCH_MAX]
    cdef cu.CUDA_BATCH_MEM_OP_NODE_PARAMS params
    cdef cu.CUgraphNode node = NULL
    cdef int status = may_add(s, g, NODE_COST + q.count * sizeof(cu.CUstreamBatchMemOpParams))
    if status != cu.CUDA_SUCCESS:
        return status
    status = batch_params(s, f, operations, q.count, words, &params)
    status = added(s, g, status or cu.cuGraphAddBatchMemOpNode(&node, into(g), NULL, 0, &params), node)
    if status == cu.CUDA_SUCCESS and g.filled == NULL:
        charge_beside(s, g, q.count * sizeof(cu.CUstreamBatchMemOpParams))
    return status


cdef int sessionGraphSetBatch_call(Session *s, Frame *f, gf_req_sessionGraphSetBatch *q, GraphExec *g,
                                   const uint8_t *operations) noexcept nogil:
    cdef cu.CUstreamBatchMemOpParams words[BATCH_MAX]
    cdef cu.CUDA_BATCH_MEM_OP_NODE_PARAMS params
    cdef cu.CUgraphNode node
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS:
        return status
    if is_made_anew(g):
        return make_anew(s, f, g, q.node, GF_OP_sessionGraphBatch)
    status = batch_params(s, f, operations, q.count, words, &params)
    return changed(s, status or cu.cuGraphExecBatchMemOpNodeSetParams(g.exec, node, &params))
