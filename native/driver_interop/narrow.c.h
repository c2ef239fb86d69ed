/* Interfaces of CUDA 2 and 3 whose sizes and device addresses have 32 bits, by those that took their place.
 * What does not fit into 32 bits is refused, never cut off. Who includes this defines DRIVER(name) and ENTER.
 */
#define NARROW_MOST UINT32_MAX

CUresult DRIVER(cuDeviceTotalMem)(unsigned *bytes, CUdevice dev) {
    size_t total;
    ENTER;
    CUresult result = bytes == NULL ? CUDA_ERROR_INVALID_VALUE : DRIVER(cuDeviceTotalMem_v2)(&total, dev);
    if (result == CUDA_SUCCESS) {
        *bytes = total < NARROW_MOST ? (unsigned)total : NARROW_MOST;
    }
    return result;
}

CUresult DRIVER(cuMemGetInfo)(unsigned *free, unsigned *total) {
    size_t left, all;
    ENTER;
    CUresult result =
        free == NULL || total == NULL ? CUDA_ERROR_INVALID_VALUE : DRIVER(cuMemGetInfo_v2)(&left, &all);
    if (result == CUDA_SUCCESS) {
        *free = left < NARROW_MOST ? (unsigned)left : NARROW_MOST;
        *total = all < NARROW_MOST ? (unsigned)all : NARROW_MOST;
    }
    return result;
}

/* Memory that the program could not name is none. */
static CUresult fit(CUdeviceptr address, CUdeviceptr_v1 *narrow) {
    if (address > NARROW_MOST) {
        DRIVER(cuMemFree_v2)(address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *narrow = (CUdeviceptr_v1)address;
    return CUDA_SUCCESS;
}

CUresult DRIVER(cuMemAlloc)(CUdeviceptr_v1 *dptr, unsigned bytesize) {
    CUdeviceptr address;
    ENTER;
    CUresult result = dptr == NULL ? CUDA_ERROR_INVALID_VALUE : DRIVER(cuMemAlloc_v2)(&address, bytesize);
    return result == CUDA_SUCCESS ? fit(address, dptr) : result;
}

CUresult DRIVER(cuMemAllocPitch)(CUdeviceptr_v1 *dptr, unsigned *pPitch, unsigned WidthInBytes,
                                 unsigned Height, unsigned ElementSizeBytes) {
    CUdeviceptr address;
    size_t pitch;
    ENTER;
    CUresult result =
        dptr == NULL || pPitch == NULL
            ? CUDA_ERROR_INVALID_VALUE
            : DRIVER(cuMemAllocPitch_v2)(&address, &pitch, WidthInBytes, Height, ElementSizeBytes);
    result = result == CUDA_SUCCESS ? fit(address, dptr) : result;
    if (result == CUDA_SUCCESS) {
        *pPitch = (unsigned)pitch;
    }
    return result;
}

CUresult DRIVER(cuMemGetAddressRange)(CUdeviceptr_v1 *pbase, unsigned *psize, CUdeviceptr_v1 dptr) {
    CUdeviceptr base;
    size_t size;
    ENTER;
    CUresult result = DRIVER(cuMemGetAddressRange_v2)(&base, &size, dptr);
    if (result == CUDA_SUCCESS && (base > NARROW_MOST || size > NARROW_MOST)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && pbase != NULL) {
        *pbase = (CUdeviceptr_v1)base;
    }
    if (result == CUDA_SUCCESS && psize != NULL) {
        *psize = (unsigned)size;
    }
    return result;
}

CUresult DRIVER(cuModuleGetGlobal)(CUdeviceptr_v1 *dptr, unsigned *bytes, CUmodule hmod, const char *name) {
    CUdeviceptr base;
    size_t size;
    ENTER;
    CUresult result = DRIVER(cuModuleGetGlobal_v2)(&base, &size, hmod, name);
    if (result == CUDA_SUCCESS && dptr != NULL && base > NARROW_MOST) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && dptr != NULL) {
        *dptr = (CUdeviceptr_v1)base;
    }
    if (result == CUDA_SUCCESS && bytes != NULL) {
        *bytes = (unsigned)size;
    }
    return result;
}

CUresult DRIVER(cuMemHostGetDevicePointer)(CUdeviceptr_v1 *pdptr, void *p, unsigned Flags) {
    CUdeviceptr address;
    ENTER;
    CUresult result =
        pdptr == NULL ? CUDA_ERROR_INVALID_VALUE : DRIVER(cuMemHostGetDevicePointer_v2)(&address, p, Flags);
    if (result == CUDA_SUCCESS && address > NARROW_MOST) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *pdptr = (CUdeviceptr_v1)address;
    }
    return result;
}

static CUDA_MEMCPY2D widen_2d(const CUDA_MEMCPY2D_v1 *copy) {
    return (CUDA_MEMCPY2D){
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcArray = copy->srcArray,
        .srcPitch = copy->srcPitch,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
        .dstPitch = copy->dstPitch,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
    };
}

static CUDA_MEMCPY3D widen_3d(const CUDA_MEMCPY3D_v1 *copy) {
    return (CUDA_MEMCPY3D){
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcZ = copy->srcZ,
        .srcLOD = copy->srcLOD,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcArray = copy->srcArray,
        .srcPitch = copy->srcPitch,
        .srcHeight = copy->srcHeight,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstZ = copy->dstZ,
        .dstLOD = copy->dstLOD,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
        .dstPitch = copy->dstPitch,
        .dstHeight = copy->dstHeight,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
        .Depth = copy->Depth,
    };
}

CUresult DRIVER(cuArrayCreate)(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray) {
    const CUDA_ARRAY_DESCRIPTOR_v1 *from = pAllocateArray;
    ENTER;
    if (from == NULL) {
        return DRIVER(cuArrayCreate_v2)(pHandle, NULL);
    }
    const CUDA_ARRAY_DESCRIPTOR desc = {from->Width, from->Height, from->Format, from->NumChannels};
    return DRIVER(cuArrayCreate_v2)(pHandle, &desc);
}

CUresult DRIVER(cuArray3DCreate)(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray) {
    const CUDA_ARRAY3D_DESCRIPTOR_v1 *from = pAllocateArray;
    ENTER;
    if (from == NULL) {
        return DRIVER(cuArray3DCreate_v2)(pHandle, NULL);
    }
    const CUDA_ARRAY3D_DESCRIPTOR desc = {from->Width,  from->Height,      from->Depth,
                                          from->Format, from->NumChannels, from->Flags};
    return DRIVER(cuArray3DCreate_v2)(pHandle, &desc);
}

/* The extents of an array fit: none is larger than a device's. */
CUresult DRIVER(cuArray3DGetDescriptor)(CUDA_ARRAY3D_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray) {
    CUDA_ARRAY3D_DESCRIPTOR desc;
    ENTER;
    CUresult result = DRIVER(cuArray3DGetDescriptor_v2)(pArrayDescriptor == NULL ? NULL : &desc, hArray);
    if (result == CUDA_SUCCESS) {
        *pArrayDescriptor =
            (CUDA_ARRAY3D_DESCRIPTOR_v1){(unsigned)desc.Width, (unsigned)desc.Height, (unsigned)desc.Depth,
                                         desc.Format,          desc.NumChannels,      desc.Flags};
    }
    return result;
}

CUresult DRIVER(cuArrayGetDescriptor)(CUDA_ARRAY_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray) {
    CUDA_ARRAY3D_DESCRIPTOR_v1 desc;
    CUresult result = DRIVER(cuArray3DGetDescriptor)(pArrayDescriptor == NULL ? NULL : &desc, hArray);
    if (result == CUDA_SUCCESS) {
        *pArrayDescriptor =
            (CUDA_ARRAY_DESCRIPTOR_v1){desc.Width, desc.Height, desc.Format, desc.NumChannels};
    }
    return result;
}

CUresult DRIVER(cuTexRefSetAddress)(unsigned *ByteOffset, CUtexref hTexRef, CUdeviceptr_v1 dptr,
                                    unsigned bytes) {
    size_t offset;
    ENTER;
    CUresult result =
        DRIVER(cuTexRefSetAddress_v2)(ByteOffset == NULL ? NULL : &offset, hTexRef, dptr, bytes);
    if (result == CUDA_SUCCESS && ByteOffset != NULL) {
        *ByteOffset = (unsigned)offset;
    }
    return result;
}

CUresult DRIVER(cuTexRefSetAddress2D)(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR_v1 *desc,
                                      CUdeviceptr_v1 dptr, unsigned Pitch) {
    ENTER;
    if (desc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUDA_ARRAY_DESCRIPTOR wide = {desc->Width, desc->Height, desc->Format, desc->NumChannels};
    return DRIVER(cuTexRefSetAddress2D_v3)(hTexRef, &wide, dptr, Pitch);
}

/* Memory that the program could not name is not told. */
CUresult DRIVER(cuTexRefGetAddress)(CUdeviceptr_v1 *pdptr, CUtexref hTexRef) {
    CUdeviceptr address;
    ENTER;
    CUresult result = DRIVER(cuTexRefGetAddress_v2)(pdptr == NULL ? NULL : &address, hTexRef);
    if (result != CUDA_SUCCESS || address > NARROW_MOST) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *pdptr = (CUdeviceptr_v1)address;
    return CUDA_SUCCESS;
}
