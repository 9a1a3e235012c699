"""One test an API spelling: a missed launch name makes kernels look unlaunched, with huge gaps."""

import pytest

from advisor.calls import call_kind, is_blocking_copy, normalise

KINDS = {
    "kernel": "cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx "
    "cuLaunchCooperativeKernel hipLaunchKernel hipExtModuleLaunchKernel hipModuleLaunchKernel",
    "graph": "cudaGraphLaunch cuGraphLaunch hipGraphLaunch",
    "memcpy": "cudaMemcpy cudaMemcpyAsync cudaMemcpy2DAsync cuMemcpyHtoDAsync hipMemcpyWithStream hipMemcpyDtoH",
    "memset": "cudaMemset cudaMemsetAsync cuMemsetD8Async hipMemsetD32",
    "sync": "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cuCtxSynchronize hipStreamSynchronize",
    "event": "cudaEventRecord cudaStreamWaitEvent cudaEventQuery hipEventRecord",
    "alloc": "cudaMalloc cudaHostAlloc cudaFree cudaFreeHost hipMalloc cuMemAllocAsync",
    "other": "cudaStreamBeginCapture cudaGraphInstantiate cudaPointerGetAttributes cudaLaunchHostFunc cudaGetDevice "
    "cudaFuncGetAttributes cuModuleLoadData cudaMemcpyToSymbolAttribute",
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for kind, names in KINDS.items() for name in names.split()])
def test_kind(name, kind):
    assert call_kind(name) == kind


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch"),
        ("cudaMemcpyAsync_ptsz_v3020", "cudaMemcpyAsync"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx"),
    ],
)
def test_suffixes_go(written, name):
    assert normalise(written) == name


def test_blocking_copies():
    assert is_blocking_copy("cudaMemcpy")
    assert is_blocking_copy("hipMemcpyWithStream")
    assert not is_blocking_copy("cudaMemcpyAsync")
    assert not is_blocking_copy("cudaLaunchKernel")
