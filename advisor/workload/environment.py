"""What the machine has, found without importing torch and without touching the CUDA driver's state.

The script decides when torch is imported and the driver initialised: it may set CUDA_VISIBLE_DEVICES first.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from advisor.errors import GpuRequired

EXTRA_PATH: Final = "CGADVISOR_EXTRA_PATH"  # the folder the parent added to PYTHONPATH, to be taken out again
OLDEST_TORCH: Final = (2, 4)
_NVML_CLOCK_SM: Final = 1
_INSTEAD: Final = "`cgadvisor analyze TRACE` and `cgadvisor report RUN` work without one, also on the bundled recording"


def torch_versions() -> tuple[str, str | None] | None:
    """(torch version, CUDA version it is built for or None) as torch/version.py says; None when torch is missing."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    cuda = re.search(r"^cuda\s*(?::[^=]*)?=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return (version[1] if version else "0"), (cuda[1] if cuda else None)


def require_torch(device: str = "cuda") -> None:
    """Raise GpuRequired, saying what can be done instead, unless torch and a device the script can use are here."""
    found = torch_versions()
    if found is None:
        raise GpuRequired(
            f"torch is not installed in {sys.executable}: run cgadvisor in the script's own environment; {_INSTEAD}"
        )
    version, cuda = found
    if _release(version) < OLDEST_TORCH:
        raise GpuRequired(f"torch {version} is too old: profile and verify need 2.4 or newer; {_INSTEAD}")
    if device == "cpu":
        return
    if cuda is None:
        raise GpuRequired(f"torch {version} is built without CUDA: install a CUDA build; {_INSTEAD}")
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        raise GpuRequired(f"CUDA_VISIBLE_DEVICES hides every GPU: unset it; {_INSTEAD}")
    if device_count() == 0:
        raise GpuRequired(f"no NVIDIA GPU or driver found: run this on a machine with one; {_INSTEAD}")


def _release(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def device_count() -> int | None:
    """GPUs the driver's management library sees; None when it is missing but the driver is there."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None if _has_driver() else 0
    if nvml.nvmlInit_v2() != 0:
        return None if _has_driver() else 0
    count = ctypes.c_uint(0)
    status = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlShutdown()
    return int(count.value) if status == 0 else None


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")  # loaded, not initialised
    except OSError:
        return False
    return True


def driver_version() -> str:
    """The NVIDIA driver's version, "" when it cannot be told."""
    with _nvml() as nvml:
        if nvml is None:
            return ""
        text = ctypes.create_string_buffer(96)
        status = nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text)))
        return text.value.decode(errors="replace") if status == 0 else ""


def clock_limit_mhz(uuid: str) -> int | None:
    """The SM clock the GPU of this UUID may reach: the one set for applications, else its highest. None when not told."""
    with _nvml() as nvml:
        if nvml is None:
            return None
        device, mhz = ctypes.c_void_p(), ctypes.c_uint()
        if nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(device)) != 0:
            return None
        for question in ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetMaxClockInfo"):
            if getattr(nvml, question)(device, ctypes.c_uint(_NVML_CLOCK_SM), ctypes.byref(mhz)) == 0 and mhz.value:
                return mhz.value
        return None


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """NVIDIA's management library, opened; None where there is none."""
    try:
        nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        yield None
        return
    if nvml.nvmlInit_v2() != 0:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def facts() -> dict[str, str]:
    """Versions and device names of this process, once the script has imported torch. No host, no user, no variable."""
    torch: Any = sys.modules.get("torch")
    known = {"python": ".".join(map(str, sys.version_info[:3])), "cpu_count": str(os.cpu_count() or 0)}
    if torch is None or not hasattr(torch, "cuda"):
        return known
    known["torch"] = str(torch.__version__)
    known["cuda"] = str(torch.version.cuda or "")
    known["driver"] = driver_version()
    if torch.cuda.is_initialized():
        known["gpus"] = "\n".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
        limit = clock_limit_mhz(str(uuid)) if uuid is not None else None
        known |= {"gpu_clock_mhz": str(limit)} if limit else {}
    return known
