"""What each CUDA and HIP API name does. Exact names decide, never prefixes: `cudaLaunch%` misses graph launches."""

from __future__ import annotations

import re
from typing import Final

# Kinds of a host-side API call. The first four submit GPU items.
KERNEL: Final = "kernel"
GRAPH: Final = "graph"
MEMCPY: Final = "memcpy"
MEMSET: Final = "memset"
SYNC: Final = "sync"
EVENT: Final = "event"
ALLOC: Final = "alloc"
OTHER: Final = "other"
CALL_KINDS: Final = (KERNEL, GRAPH, MEMCPY, MEMSET, SYNC, EVENT, ALLOC, OTHER)
SUBMITTING: Final = (KERNEL, GRAPH, MEMCPY, MEMSET)

_KERNEL_CALLS = (
    "cudaLaunch cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cudaLaunchCooperativeKernelMultiDevice "
    "cuLaunch cuLaunchGrid cuLaunchGridAsync cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel "
    "cuLaunchCooperativeKernelMultiDevice "
    "hipLaunchKernel hipLaunchKernelExC hipExtLaunchKernel hipLaunchCooperativeKernel "
    "hipLaunchCooperativeKernelMultiDevice hipModuleLaunchKernel hipModuleLaunchCooperativeKernel "
    "hipExtModuleLaunchKernel hipHccModuleLaunchKernel hipLaunchByPtr hipDrvLaunchKernelEx"
)
_GRAPH_CALLS = "cudaGraphLaunch cuGraphLaunch hipGraphLaunch"
_SYNC_CALLS = (
    "cudaDeviceSynchronize cudaThreadSynchronize cudaStreamSynchronize cudaEventSynchronize "
    "cuCtxSynchronize cuStreamSynchronize cuEventSynchronize "
    "hipDeviceSynchronize hipStreamSynchronize hipEventSynchronize hipCtxSynchronize"
)
_EVENT_CALLS = (
    "cudaEventRecord cudaEventRecordWithFlags cudaEventQuery cudaStreamQuery cudaStreamWaitEvent cudaEventElapsedTime "
    "cuEventRecord cuEventRecordWithFlags cuEventQuery cuStreamQuery cuStreamWaitEvent cuEventElapsedTime "
    "hipEventRecord hipEventRecordWithFlags hipEventQuery hipStreamQuery hipStreamWaitEvent hipEventElapsedTime"
)
_ALLOC_CALLS = (
    "cudaMalloc cudaMallocAsync cudaMallocHost cudaMallocManaged cudaMallocPitch cudaMalloc3D cudaHostAlloc "
    "cudaHostRegister cudaHostUnregister cudaFree cudaFreeAsync cudaFreeHost "
    "cuMemAlloc cuMemAllocAsync cuMemAllocHost cuMemAllocManaged cuMemHostAlloc cuMemFree cuMemFreeAsync cuMemFreeHost "
    "cuMemCreate cuMemMap cuMemUnmap cuMemRelease "
    "hipMalloc hipMallocAsync hipHostMalloc hipMallocManaged hipExtMallocWithFlags hipFree hipFreeAsync hipHostFree"
)
_TABLE: dict[str, str] = {
    name: kind
    for kind, names in (
        (KERNEL, _KERNEL_CALLS),
        (GRAPH, _GRAPH_CALLS),
        (SYNC, _SYNC_CALLS),
        (EVENT, _EVENT_CALLS),
        (ALLOC, _ALLOC_CALLS),
    )
    for name in names.split()
}
# Copies come in dozens of spellings (cudaMemcpy2DToArrayAsync, cuMemcpyHtoDAsync, ...), all of one fixed shape.
_COPY = re.compile(r"^(?:cuda|cu|hip)(?:Memcpy|Drv[A-Z]\w*Memcpy)(?!.*Attribute)\w*$")
_SET = re.compile(r"^(?:cuda|cu|hip)Mem[sS]et(?:$|2D|3D|D(?:8|16|32)|Async)\w*$")
_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")


def normalise(api: str) -> str:
    """An API name without version or per-thread-stream suffix: `cudaLaunchKernel_v7000` -> `cudaLaunchKernel`."""
    return _VERSION.sub("", api)


def call_kind(api: str) -> str:
    """The kind of a normalised API name, `OTHER` when it is none the tool knows."""
    known = _TABLE.get(api)
    if known is not None:
        return known
    if _COPY.match(api):
        return MEMCPY
    return MEMSET if _SET.match(api) else OTHER


def is_blocking_copy(api: str) -> bool:
    """Whether a copy API returns only when the copy is done (`cudaMemcpy`, not `cudaMemcpyAsync`)."""
    return call_kind(api) == MEMCPY and "Async" not in api
