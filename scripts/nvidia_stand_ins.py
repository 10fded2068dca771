"""Stand-ins for NVIDIA's libraries, so that a CUDA build of torch imports on a machine without them and without a driver.

    python scripts/nvidia_stand_ins.py SITE_PACKAGES/torch FOLDER
    LD_LIBRARY_PATH=FOLDER python -c 'import torch; print(torch.cuda.is_available())'

A CUDA build is linked against some fourteen libraries that come in packages of several GB. Where there is no driver, all
that any of them ever says is what libcudart says: cudaErrorInsufficientDriver. So each stand-in has the symbols that
torch's own libraries miss, and every one of them answers that. Needs a C compiler, nm and readelf.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

VENDOR = re.compile(r"lib(cu|nccl|nvrtc|nvshmem|nvJitLink|nvToolsExt)")
INSUFFICIENT_DRIVER = 35  # cudaErrorInsufficientDriver (driver_types.h)

# Read by torch whatever the driver says. The text is libcudart's own.
SPOKEN = f"""
const char *cudaGetErrorName(int e) {{ return "cudaErrorInsufficientDriver"; }}
const char *cudaGetErrorString(int e) {{ return "CUDA driver version is insufficient for CUDA runtime version"; }}
int cudaDriverGetVersion(int *version) {{ *version = 0; return 0; }}
int cudaGetDeviceCount(int *count) {{ *count = 0; return {INSUFFICIENT_DRIVER}; }}
int cudaGetLastError(void) {{ return 0; }}
int cudaPeekAtLastError(void) {{ return 0; }}
"""
# Called by the loader of torch's kernels, before any question of a driver comes up.
REGISTRATION = re.compile(r"__cuda(Register|Unregister|Init)")


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(torch: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    libraries = sorted((torch / "lib").glob("*.so"))
    own = {path.name for path in libraries}
    needed: set[str] = set()
    versioned: dict[str, set[str]] = defaultdict(set)  # by the version node, which is most often the library's name
    plain: set[str] = set()
    for path in libraries:
        needed |= {
            name
            for name in re.findall(r"NEEDED.*\[(\S+)\]", output_of("readelf", "-d", str(path)))
            if VENDOR.match(name)
        }
        for line in output_of("nm", "-D", "--undefined-only", str(path)).splitlines():
            name, _, node = line.split()[-1].partition("@")
            if re.match(r"(__)?(cu|nccl|nvrtc|nvshmem|nvml|nvtx)", name):
                (versioned[node.lstrip("@")] if node else plain).add(name)
    for library in sorted(needed - own):
        nodes = [
            node for node in versioned if node == library or (not node.startswith("lib") and node.lower() in library)
        ]
        compile_stand_in(folder / library, {node: versioned[node] for node in nodes}, plain if not nodes else set())


def compile_stand_in(library: Path, by_node: dict[str, set[str]], plain: set[str]) -> None:
    spoken = SPOKEN if library.name.startswith("libcudart") else ""
    # A symbol without a version may be anybody's: each unversioned library has them all, and the first one is taken.
    names = set().union(plain, *by_node.values()) - set(re.findall(r"(cuda\w+)\(", spoken))
    source = spoken + "\n".join(
        f"long {name}(void) {{ return {0 if REGISTRATION.match(name) else INSUFFICIENT_DRIVER}; }}"
        for name in sorted(names)
    )
    script = "\n".join(f"{node} {{ {'; '.join(sorted(symbols))}; }};" for node, symbols in by_node.items())
    with tempfile.TemporaryDirectory() as scratch:
        code, versions = Path(scratch, "code.c"), Path(scratch, "versions")
        code.write_text(source + "\n", encoding="utf-8")
        versions.write_text(script + "\n", encoding="utf-8")
        options = [f"-Wl,--version-script={versions}"] if by_node else []
        flags = ["-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", *options]
        subprocess.run(["cc", *flags, "-o", str(library), str(code)], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
