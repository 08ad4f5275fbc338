"""Where a verdict was reached: versions, processor, threads, GPU. An allow-list; no variables, names or paths."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: The folder in which the package is installed.
ROOT = Path(__file__).parents[2]
#: Its folders: in a checkout what its makers use stands beside them, and decides no verdict.
_FOLDERS = ("reference", "impl", "oracles", "properties", "reports", "api")
_PACKAGES = ("opassay", "torch", "numpy", "mpmath", "gmpy2", "hypothesis", "pytest", "pytest-xdist", "triton")

#: The first and the last minor version that opassay was tested with.
TESTED = {"python": ("3.11", "3.13"), "torch": ("2.11", "2.15"), "triton": ("3.6", "3.9")}


def untested(version_of: Mapping[str, str]) -> list[str]:
    """A sentence for each of these versions (see `versions`, `environment`) that opassay was not tested with."""
    return [
        f"{name} {version_of[name]}: opassay was tested with {name} {first} to {last} only"
        for name, (first, last) in TESTED.items()
        if name in version_of and not _minor(first) <= _minor(version_of[name]) <= _minor(last)
    ]


def _minor(version_text: str) -> tuple[int, ...]:
    """(2, 13) of "2.13.0+cpu"; (0,) of a text without a number, which no range has."""
    return tuple(map(int, re.findall(r"\d+", version_text)[:2])) or (0,)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a verdict; torch is not imported."""
    version_of = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            version_of[name] = version(name)
    return version_of


def digest_sources() -> str:
    """SHA-256 of the names and the bytes of every Python file of opassay; of a file that goes meanwhile its name alone.

    Two machines can tell by it whether their sources are the same, and a process that has loaded some of them whether
    those which it loads later may be of another version.
    """
    root, digest, paths = str(ROOT), hashlib.sha256(), list[str]()
    # A strict editable installation is a folder of links, which `Path.rglob` does not follow.
    for folder, within, names in os.walk(root, followlinks=True):
        within[:] = [name for name in within if folder != root or name in _FOLDERS]
        paths += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    for path in sorted(paths):
        content = b""
        with contextlib.suppress(OSError), open(path, "rb", 0) as file:
            content = file.read()
        name = path[len(root) + 1 :].replace(os.sep, "/")
        digest.update(f"{name}\n{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def environment() -> dict[str, str]:
    """Versions, a digest of opassay's source, platform, CPU, threads, and CUDA, driver and GPU where there are any."""
    import torch

    facts = versions()
    facts["source"] = digest_sources()
    facts["torch"] = str(torch.__version__)
    facts["platform"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    facts["libc"] = " ".join(platform.libc_ver())
    facts["cpu"] = _cpu_name()
    facts["cpu capability"] = torch.backends.cpu.get_cpu_capability()
    # The number of processors that this process may use; in a container the machine often has more.
    facts["cpu count"] = str(len(os.sched_getaffinity(0)))
    facts["torch threads"] = str(torch.get_num_threads())
    facts["mkldnn"] = str(torch.backends.mkldnn.is_available())
    return facts | _gpu()


def _cpu_name() -> str:
    lines = _read_kernel_file("/proc/cpuinfo").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or "unknown"


def _gpu() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        return {"cuda": "not available"}
    properties = torch.cuda.get_device_properties(0)
    facts = {
        "cuda": str(torch.version.cuda),
        "gpu": properties.name,
        "gpu count": str(torch.cuda.device_count()),
        "gpu capability": f"sm{properties.major}{properties.minor}",
        "gpu memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "cudnn": str(torch.backends.cudnn.version()),
        "cublas workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "cuBLAS's own"),
        "tf32 matmul": str(torch.backends.cuda.matmul.allow_tf32),
        "tf32 cudnn": str(torch.backends.cudnn.allow_tf32),
    }
    driver = _driver()
    return facts | ({"nvidia driver": driver} if driver else {})


def _driver() -> str:
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]+)", _read_kernel_file("/proc/driver/nvidia/version"))
    return match[1] if match else ""


def _read_kernel_file(path: str) -> str:
    """The text of a file of the kernel; empty where there is no such file."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
