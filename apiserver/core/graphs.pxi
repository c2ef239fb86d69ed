# Executable graphs (WIRE.md 13). The guest sends nodes and edges; what it was made executable of stays here, for updates
# name its nodes. A node may name what has ended since: it is refused, but for one of a session that is being restored,
# which becomes an empty node, because no launch may reach it.

cdef enum:
    NODE_COST = 2 << 10         # bytes of a node here and in the driver
    EDGE_COST = 64
    NODE_LIMIT = 1 << 20        # of all graphs of a session
    BATCH_MAX = 256             # operations on words of memory in a node


cdef void begin_graphs(Session *s) noexcept nogil:
    s.graphs.nodes = 0
    s.graphs.numbering_known = False
    if s.graphs.fillers == NULL:
        s.graphs.fillers = new vector[ConditionFiller]()


cdef struct WireEdge:
    uint32_t source
    uint32_t target
    cu.CUgraphEdgeData data


cdef int find_graph_exec(Session *s, Frame *f, uint64_t handle, GraphExec **found) noexcept nogil:
    found[0] = <GraphExec *>find(s, handle, GRAPH_EXEC)
    return cu.CUDA_ERROR_INVALID_VALUE if found[0] == NULL else cu.CUDA_SUCCESS


cdef void free_graph(GraphExec *g) noexcept nogil:
    del g.nodes
    del g.records
    del g.graphs
    del g.conditions
    del g.conditionals
    free(g)


cdef int on_sessionGraphBegin(Session *s, Frame *f, gf_req_sessionGraphBegin *q) noexcept nogil:
    cdef GraphExec *g = <GraphExec *>calloc(1, sizeof(GraphExec))
    cdef int status
    g.nodes = new vector[Place]()
    g.records = new vector[uint64_t]()
    g.graphs = new vector[cu.CUgraph]()
    g.conditions = new vector[Condition]()
    g.conditionals = new vector[Conditional]()
    status = cu.cuGraphCreate(&g.graph, 0)
    g.graphs.push_back(g.graph)
    if status == cu.CUDA_SUCCESS:
        status = put(s, q.exec, GRAPH_EXEC, &g.base, f.context)
        if status != cu.CUDA_SUCCESS:
            cu.cuGraphDestroy(g.graph)
    if status != cu.CUDA_SUCCESS:
        free_graph(g)
    return status


cdef int drop_graph_exec(Session *s, GraphExec *g) noexcept nogil:
    cdef int status
    forget(s, &g.base)
    charge_nodes(s, g, -<int64_t>g.charged)
    status = enter(s, g.base.context)
    if g.exec != NULL:
        status = cu.cuGraphExecDestroy(g.exec) or status
    status = cu.cuGraphDestroy(g.graph) or status
    free_graph(g)
    return status


cdef int retire_graph_exec(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef GraphExec *g = <GraphExec *>find(s, handle, GRAPH_EXEC)
    return cu.CUDA_ERROR_INVALID_VALUE if g == NULL else drop_graph_exec(s, g)


cdef void charge_nodes(Session *s, GraphExec *g, int64_t count) noexcept nogil:
    g.charged += count
    s.graphs.nodes += count
    spend_apart(s, count * NODE_COST)


cdef int may_add(Session *s, GraphExec *g, uint64_t cost) noexcept nogil:
    return cu.CUDA_ERROR_INVALID_VALUE if g.exec != NULL or into(g) == NULL else may_hold(s, cost)


cdef inline cu.CUgraph into(GraphExec *g) noexcept nogil:
    """The graph that nodes are added to."""
    return g.graphs[0][g.current]


cdef int may_hold(Session *s, uint64_t cost) noexcept nogil:
    cdef bint granted
    pthread_mutex_lock(&s.lock)
    granted = s.graphs.nodes < NODE_LIMIT and affords(s, cost)
    pthread_mutex_unlock(&s.lock)
    return cu.CUDA_SUCCESS if granted else cu.CUDA_ERROR_OUT_OF_MEMORY


cdef int added(Session *s, GraphExec *g, int status, cu.CUgraphNode node) noexcept nogil:
    """Enters a new node, or, in place of one that cannot be any more, an empty one."""
    cdef Place place
    if status != cu.CUDA_SUCCESS and s.arrival.restoring:
        status = cu.cuGraphAddEmptyNode(&node, into(g), NULL, 0)
    if status == cu.CUDA_SUCCESS:
        place.node = node
        place.graph = g.current
        place.conditional = False
        g.nodes.push_back(place)
        charge_nodes(s, g, 1)
    return status


cdef inline int changed(Session *s, int status) noexcept nogil:
    """A change that cannot be any more is none of a session that is being restored."""
    return cu.CUDA_SUCCESS if s.arrival.restoring else status


cdef int node_of(GraphExec *g, uint32_t place, cu.CUgraphNode *node) noexcept nogil:
    if g.exec == NULL or place >= g.nodes.size() or g.nodes[0][place].conditional or g.nodes[0][place].node == NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    node[0] = g.nodes[0][place].node
    return cu.CUDA_SUCCESS


# Kernels

cdef int kernel_params(Session *s, Frame *f, uint64_t handle, const uint32_t *grid, const uint32_t *block,
                       uint32_t shared, size_t *size, const uint8_t *packed, void **extra,
                       cu.CUDA_KERNEL_NODE_PARAMS *params) noexcept nogil:
    cdef Function *function = NULL
    cdef int status = find_function_or_kernel(s, f, handle, &function)
    if status != cu.CUDA_SUCCESS:
        return status
    if size[0] < function.kernel.param_bytes:
        return cu.CUDA_ERROR_INVALID_VALUE
    memset(params, 0, sizeof(cu.CUDA_KERNEL_NODE_PARAMS))
    params.func = function.cu
    params.gridDimX = grid[0]
    params.gridDimY = grid[1]
    params.gridDimZ = grid[2]
    params.blockDimX = block[0]
    params.blockDimY = block[1]
    params.blockDimZ = block[2]
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
    status = status or kernel_params(s, f, q.function, q.grid, q.block, q.shared, &size, packed, extra, &params)
    status = status or cu.cuGraphAddKernelNode(&node, into(g), NULL, 0, &params)
    for i in range(q.attributes):
        status = status or cu.cuGraphKernelNodeSetAttribute(node, attributes[i].id, &attributes[i].value)
    return added(s, g, status, node)


cdef int sessionGraphSetKernel_call(Session *s, Frame *f, gf_req_sessionGraphSetKernel *q, GraphExec *g,
                                    const uint8_t *packed) noexcept nogil:
    cdef cu.CUDA_KERNEL_NODE_PARAMS params
    cdef cu.CUgraphNode node
    cdef void *extra[5]
    cdef size_t size = q.params
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS:
        return status
    status = kernel_params(s, f, q.function, q.grid, q.block, q.shared, &size, packed, extra, &params)
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


cdef int check_rows(Session *s, const Rows *r) noexcept nogil:
    cdef uint64_t bytes = gf_times(r.width, r.element)
    cdef uint64_t gaps = r.rows - 1
    if r.element == 3 or rows_overlap(r.target_pitch, bytes, r.rows) or r.target == 0:
        return cu.CUDA_ERROR_INVALID_VALUE
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


cdef void fill_params(const Rows *r, cu.CUDA_MEMSET_NODE_PARAMS *fill) noexcept nogil:
    memset(fill, 0, sizeof(cu.CUDA_MEMSET_NODE_PARAMS))
    fill.dst = r.target
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
        fill_params(&rows, &fill)
        status = cu.cuGraphAddMemsetNode(&node, into(g), NULL, 0, &fill, f.context.cu)
    return added(s, g, status, node)


cdef int sessionGraphSetRows_call(Session *s, Frame *f, gf_req_sessionGraphSetRows *q, GraphExec *g) noexcept nogil:
    cdef Rows rows
    cdef cu.CUDA_MEMCPY3D copy
    cdef cu.CUDA_MEMSET_NODE_PARAMS fill
    cdef cu.CUgraphNode node
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS:
        return status
    memcpy(&rows, &q.target, sizeof(Rows))
    status = check_rows(s, &rows)
    if status == cu.CUDA_SUCCESS and rows.source != 0:
        copy_params(&rows, &copy)
        status = cu.cuGraphExecMemcpyNodeSetParams(g.exec, node, &copy, f.context.cu)
    elif status == cu.CUDA_SUCCESS:
        fill_params(&rows, &fill)
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


cdef int box_params(Session *s, const Box *box, Array *target, Array *source,
                    cu.CUDA_MEMCPY3D *copy) noexcept nogil:
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


cdef int sessionGraphBox_call(Session *s, Frame *f, gf_req_sessionGraphBox *q, GraphExec *g, Array *target,
                              Array *source) noexcept nogil:
    cdef Box box
    cdef cu.CUDA_MEMCPY3D copy
    cdef cu.CUgraphNode node = NULL
    cdef int status = may_add(s, g, NODE_COST)
    if status != cu.CUDA_SUCCESS:
        return status
    memcpy(&box, &q.target_array, sizeof(Box))
    status = box_params(s, &box, target, source, &copy)
    return added(s, g, status or cu.cuGraphAddMemcpyNode(&node, into(g), NULL, 0, &copy, f.context.cu), node)


cdef int sessionGraphSetBox_call(Session *s, Frame *f, gf_req_sessionGraphSetBox *q, GraphExec *g, Array *target,
                                 Array *source) noexcept nogil:
    cdef Box box
    cdef cu.CUDA_MEMCPY3D copy
    cdef cu.CUgraphNode node
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS:
        return status
    memcpy(&box, &q.target_array, sizeof(Box))
    status = box_params(s, &box, target, source, &copy)
    return changed(s, status or cu.cuGraphExecMemcpyNodeSetParams(g.exec, node, &copy, f.context.cu))


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
        g.records.push_back(q.subject)
    elif status == cu.CUDA_SUCCESS:
        status = cu.cuGraphAddEventWaitNode(&node, into(g), NULL, 0, event.cu)
    return added(s, g, status, node)


cdef int sessionGraphSetNode_call(Session *s, Frame *f, gf_req_sessionGraphSetNode *q, GraphExec *g) noexcept nogil:
    cdef cu.CUDA_HOST_NODE_PARAMS host
    cdef Event *event = NULL
    cdef cu.CUgraphNode node
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS or q.kind == GF_GRAPH_NODE_EMPTY:
        return status
    if q.kind == GF_GRAPH_NODE_ENABLE or q.kind == GF_GRAPH_NODE_DISABLE:
        return changed(s, cu.cuGraphNodeSetEnabled(g.exec, node, q.kind == GF_GRAPH_NODE_ENABLE))
    if q.kind == GF_GRAPH_NODE_HOST:
        host_params(q.subject, &host)
        return changed(s, cu.cuGraphExecHostNodeSetParams(g.exec, node, &host))
    status = find_plain_event(s, f, q.subject, &event)
    if status == cu.CUDA_SUCCESS and q.kind == GF_GRAPH_NODE_RECORD:
        status = cu.cuGraphExecEventRecordNodeSetEvent(g.exec, node, event.cu)
        g.records.push_back(q.subject)
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
    return added(s, g, status or cu.cuGraphAddBatchMemOpNode(&node, into(g), NULL, 0, &params), node)


cdef int sessionGraphSetBatch_call(Session *s, Frame *f, gf_req_sessionGraphSetBatch *q, GraphExec *g,
                                   const uint8_t *operations) noexcept nogil:
    cdef cu.CUstreamBatchMemOpParams words[BATCH_MAX]
    cdef cu.CUDA_BATCH_MEM_OP_NODE_PARAMS params
    cdef cu.CUgraphNode node
    cdef int status = node_of(g, q.node, &node)
    if status != cu.CUDA_SUCCESS:
        return status
    status = batch_params(s, f, operations, q.count, words, &params)
    return changed(s, status or cu.cuGraphExecBatchMemOpNodeSetParams(g.exec, node, &params))


cdef int sessionGraphEdges_call(Session *s, Frame *f, gf_req_sessionGraphEdges *q, GraphExec *g,
                                const uint8_t *edges) noexcept nogil:
    cdef WireEdge edge
    cdef cu.CUgraphNode source, target
    cdef cu.CUgraph graph
    cdef uint32_t i
    cdef int status = may_add(s, g, <uint64_t>q.count * EDGE_COST)
    for i in range(q.count):
        memcpy(&edge, edges + i * sizeof(WireEdge), sizeof(WireEdge))
        if edge.source >= g.nodes.size() or edge.target >= g.nodes.size():
            status = status or cu.CUDA_ERROR_INVALID_VALUE
        if status != cu.CUDA_SUCCESS:
            return status
        source = g.nodes[0][edge.source].node
        target = g.nodes[0][edge.target].node
        graph = g.graphs[0][g.nodes[0][edge.source].graph]
        if g.nodes[0][edge.source].graph != g.nodes[0][edge.target].graph or graph == NULL or source == NULL or target == NULL:
            return cu.CUDA_ERROR_INVALID_VALUE
        status = cu.cuGraphAddDependencies(graph, &source, &target, &edge.data, 1)
    return status


cdef int sessionGraphReady_call(Session *s, Frame *f, gf_req_sessionGraphReady *q, GraphExec *g) noexcept nogil:
    if g.exec != NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    return cu.cuGraphInstantiate(&g.exec, g.graph, q.flags)


cdef int sessionGraphLaunch_call(Session *s, Frame *f, gf_req_sessionGraphLaunch *q, GraphExec *g,
                                 Stream *stream) noexcept nogil:
    cdef Event *event = NULL
    cdef size_t i
    cdef int status = cu.CUDA_SUCCESS
    if g.exec == NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    if stream == f.context.legacy and f.context.uncovered:
        status = note_copies(s, f.context)
    s.stats.launches += 1
    note_work(s)
    expect_output(s)
    status = status or cu.cuGraphLaunch(g.exec, stream.cu)
    for i in range(g.records.size()):
        if status == cu.CUDA_SUCCESS and find_event(s, f, g.records[0][i], &event) == cu.CUDA_SUCCESS:
            event.recorded = True
            event.aged = False
    return status
