"""The text of a device error, taken apart: what is complained of, which argument, which devices. Needs no torch.

PyTorch says one thing in many ways: TensorIterator, the generated checks (worded anew in 2.8), convolutions, recurrent
layers, indexing, Apple's kernels. `read(type, text)` answers with a `Complaint`, or None where the error has nothing to do
with devices. Patterns are tried in order; what none of them knows but names two devices is still a mismatch.

Sources: the texts of the host code of the CUDA wheels 2.6 to 2.14, the strings of the macOS wheels, aten/src/ATen.
"""

from __future__ import annotations

import builtins
import enum
import re
from dataclasses import dataclass


class Complaint(enum.Enum):
    """What a device error complains of."""

    MISMATCH = "operands on different devices"
    NUMPY = "a device tensor where NumPy needs host memory"
    HOST_ONLY = "an argument that must be on the CPU"
    GENERATOR = "a generator of another device"
    PINNING = "pinning what is on a device"
    DTYPE = "a dtype the device does not have"
    ABSENT = "a device that is not here"
    ORDINAL = "an index beyond the devices that are here"
    CHECKPOINT = "a checkpoint of a device that is not here"
    KERNEL = "an operator the device does not have"
    SIZES = "sizes that an operator of the device does not take"
    GRADIENT = "a gradient on another device"


@dataclass(frozen=True, slots=True)
class Message:
    """What the text of a device error says.

    Attributes:
        complaint: What it complains of.
        argument: The name of the argument at odds ("weight", "index"), in the words of the op; or None.
        found: The device that argument is on, or None.
        others: The device of the rest, or the one that was expected, or None.
        devices: All devices named, in order, each once.
        op: The op in whose kernel or check it happened ("addmm"), or None.
        dtype: The dtype that is at fault, or None.
    """

    complaint: Complaint
    argument: str | None = None
    found: str | None = None
    others: str | None = None
    devices: tuple[str, ...] = ()
    op: str | None = None
    dtype: str | None = None


_D = r"((?:cpu|cuda|hip|mps|xpu|hpu|npu|xla|meta|privateuseone)(?::\d+)?)"
_DEVICE = re.compile(rf"(?<![\w.]){_D}(?![\w.])")
_WRAPPER = re.compile(r"in method (?:wrapper_(?:Sparse|Nested|Quantized)*[A-Z]+_+)?(\w+)")

HELD = (None, "fp64", "fp16")
"""How a message names a dtype (`Message.dtype`) that the device holds and does not compute in: Intel's."""

_M, _C = Complaint.MISMATCH, Complaint
_PATTERNS: tuple[tuple[Complaint, re.Pattern[str]], ...] = tuple(
    (complaint, re.compile(pattern))
    for complaint, pattern in (
        # Exactly one pattern for each way of saying it; groups: argument, found, others, op, dtype.
        (_M, rf"got (?P<argument>\w+) is on (?P<found>{_D}), different from other tensors on (?P<others>{_D})"),
        (_M, (rf"found at least two devices, (?P<others>{_D}) and (?P<found>{_D})! \(when checking argument for argument "
             r"(?P<argument>\w+)")),
        (_M, rf"found at least two devices, (?P<others>{_D}) and (?P<found>{_D})!"),
        (_M, r"found at least two devices\.?$"),
        (_M, r"Input type \((?P<found_type>[\w.]+)\) and (?P<argument>weight|bias) type \((?P<others_type>[\w.]+)\)"),
        (_M, rf"found input tensor at (?P<others>{_D}) and (?P<argument>hidden|parameter) tensor at (?P<found>{_D})"),
        (_M, rf"indices should be either on cpu or on the same device as the indexed tensor \((?P<found>{_D})\)"),
        (_M, rf"got (?P<argument>mask) on (?P<found>{_D}) and self on (?P<others>{_D})"),
        (_M, rf"expected device (?P<others>{_D}) but got device (?P<found>{_D}) for (?P<argument>value) tensor"),
        (_M, (rf"Expected tensor to have (?P<others>{_D}) Device, but got tensor with (?P<found>{_D}) Device"
             r"(?: \(while checking arguments for (?:torch\.)?(?P<op>\w+))?")),
        (_M, rf"got self on (?P<others>{_D}) and (?P<argument>window) on (?P<found>{_D})"),
        (_M, rf"but found b on (?P<found>{_D}) and A on (?P<others>{_D})"),
        (_M, rf"Expected out tensor to have device (?P<others>{_D}), but got (?P<found>{_D}) instead"),
        (_M, rf"device type (?P<others>{_D}) does not match device type of out parameter \((?P<found>{_D})\)"),
        (_M, rf"(?P<argument>scalar) tensor expected to be on (?P<others>{_D}) but is on (?P<found>{_D})"),
        (_C.HOST_ONLY, rf"Expected (?P<argument>scalars) to be on CPU, got (?P<found>{_D})"),
        (_C.HOST_ONLY, rf"(?P<argument>tensor_indices_or_sections) to be on cpu, but it's on (?P<found>{_D})"),
        (_M, (r"Tensor for argument (?:#\d+ )?'?(?P<argument>\w+)'? is on (?:CPU|cpu),? but expected (?:it )?(?:to be )?on "
             rf"(?:GPU|(?P<others>{_D}))"
             r"(?: \(while checking arguments for (?P<op>\w+?)(?:_out_mps_impl)?\))?")),
        (_M, r"Expected (?P<argument>\w+)\.is_mps\(\) to be true"),
        (_M, rf"(?P<op>\w+): input\(device='(?P<found>{_D})'\) and weight\(device='?(?P<others>{_D})'?\)"),
        (_M, rf"is_cuda\(\) INTERNAL ASSERT FAILED .* expected a CUDA device but found (?P<found>{_D})"),
        (_M, r"Placeholder storage has not been allocated on MPS device|Passed CPU tensor to MPS op"),
        (_M, r"Trying to pass too many CPU scalars to non-CPU kernel"),
        (_M, r"(?P<op>\w+): expected '(?P<argument>\w+)' to be CUDA, but got CPU"),
        (_M, r"Pointer argument \(at \d+\) cannot be accessed from Triton"),
        (_M, r"(?P<op>quantile)\(\) (?P<argument>q) tensor must be on the same device as the input tensor"),
        (_M, r"(?P<op>meshgrid) expects all tensors to have the same device"),
        (_M, r"(?P<op>masked_fill_): Expected inputs to be on same device"),
        (_M, r"tensors? (?:in list )?must (?:all )?be on the same device|need to be on the same device"),
        (_M, r"Found two parameters on different devices"),
        (_M, (rf"module must have its parameters and buffers on device (?P<others>{_D}).* found one of them on device: "
             rf"(?P<found>{_D})")),
        (_M, r"input module must be on the same type of devices|module parameters \{device"),
        (_M, rf"Tensor on device (?P<found>{_D}) is not on the expected device (?P<others>{_D})"),
        (_M, rf"values for attribute 'device' do not match: (?P<others>{_D}) != (?P<found>{_D})"),
        (_M, rf"set the storage of a tensor on device \"(?P<others>{_D})\" to a storage on different device \"(?P<found>{_D})\""),
        (_C.GRADIENT, (rf"Function (?P<op>\w+)Backward returned an invalid gradient .* expected device (?P<others>{_D}) but got "
             rf"(?P<found>{_D})")),
        (_C.GRADIENT, rf"(?:expected device|located on device with type) '?(?P<others>{_D})'? but got '?(?P<found>{_D})'?"),
        (_C.GRADIENT, rf"assign a gradient with device type '(?P<found>{_D})' to a tensor with device type '(?P<others>{_D})'"),
        (_C.GRADIENT, r"assign a gradient located on device with index"),
        (_C.GRADIENT, r"has changed the type of value \(was (?P<others_type>[\w.]+) got (?P<found_type>[\w.]+)\)"),
        (_C.NUMPY, rf"can't convert (?P<found>{_D}) device type tensor to numpy"),
        (_C.NUMPY, r"Can't get __cuda_array_interface__"),
        (_C.HOST_ONLY, rf"'(?P<argument>lengths)' argument should be a 1D CPU int64 tensor, but got \w+ (?P<found>{_D}) \w+"),
        (_C.GENERATOR, rf"Expected a '(?P<others>{_D})' device type for generator but found '(?P<found>{_D})'"),
        (_C.GENERATOR, r"Cannot execute getNewGenerator\(\) without"),
        (_C.PINNING, r"(?:cannot pin '(?P<found_type>[\w.]+)' o|O)nly dense CPU tensors can be pinned"),
        (_C.DTYPE, r"Cannot convert a (?:(?P<others_type>MPS) Tensor to )?(?P<dtype>float64)"),
        (_C.DTYPE, r"Trying to convert (?P<dtype>\w+) to the (?P<others_type>\w+) backend but it does not have support"),
        (_C.DTYPE, r"Required aspect (?P<dtype>fp64|fp16) is not supported on the device"),
        (_C.DTYPE, r"Kernel is incompatible with all devices in devs"),
        (_C.DTYPE, r"(?P<dtype>float64) is not supported on MPS"),
        (_C.CHECKPOINT, r"Attempting to deserialize object on (?:a )?(?P<found>CUDA|XPU|MPS|HPU)"),
        (_C.CHECKPOINT, rf"Storage device not recognized: (?P<found>{_D})"),
        (_C.ABSENT, r"Torch not compiled with (?P<found>CUDA|XPU|MPS) enabled"),
        (_C.ABSENT, rf"not linked with support for (?P<found>{_D}) devices"),
        (_C.ABSENT, r"Found no (?P<found>NVIDIA) driver|No HIP GPUs|No CUDA GPUs|no XPU devices"),
        (_C.ABSENT, r"Cannot access accelerator device when none is available"),
        (_C.ORDINAL, r"(?P<found>CUDA|HIP) error: invalid device ordinal|Invalid device id"),
        (_C.ORDINAL, r"device index (?:is out of range|value \d+ is out of index range)"),
        (_C.ABSENT, (r"Could not run 'aten::empty(?:\.memory_format|_strided)' with arguments from the "
             r"'(?P<found>MPS|XPU|CUDA|HIP)' backend")),
        (_C.KERNEL, r"operator '(?P<op>[\w:.]+)' is not currently (?:implemented|supported) (?:for|on) the (?P<others>MPS|XPU)"),
        (_C.SIZES, r"Adaptive pool (?P<others>MPS):"),
        (_C.KERNEL, r"Could not run '(?P<op>[\w:.]+)' with arguments from the '(?P<others_type>MPS|XPU|CUDA|HIP|HPU)' backend"),
    )
)  # fmt: skip


_KINDS = ("RuntimeError", "TypeError", "ValueError", "NotImplementedError", "AssertionError", "Exception")
"""The builtin exceptions that PyTorch raises for devices."""
_TOGETHER = re.compile(
    r"(?:on|at) the same device|to be on |should be on |must be on |same device type|different devices", re.IGNORECASE
)


def read(kind: str, text: str) -> Message | None:
    """Take the text of an exception apart.

    Args:
        kind: The exception's type as Python prints it: "RuntimeError".
        text: `str(exception)`, of any length; the first 4,000 characters count.

    Returns:
        None where the error is not about devices.

    >>> read("RuntimeError", "indices should be either on cpu or on the same device as the indexed tensor (cpu)").found
    'cpu'
    >>> read("ValueError", "too many values to unpack") is None
    True
    """
    if hasattr(builtins, kind) and kind not in _KINDS:
        return None
    text = text[:4000]
    asserted = kind == "AssertionError"  # of PyTorch's own few are; any other text is what somebody's test found
    for complaint, pattern in _PATTERNS:
        match = pattern.search(text)
        if match is None or (asserted and complaint not in (Complaint.ABSENT, Complaint.ORDINAL)):
            continue
        named = {key: value for key, value in match.groupdict().items() if value is not None}
        found = named.get("found") or _of_type(named.get("found_type"))
        others = named.get("others") or _of_type(named.get("others_type"))
        op = named.get("op")
        wrapper = _WRAPPER.search(text)
        if op is None and wrapper is not None:
            op = _op_of(wrapper[1])
        devices = tuple(dict.fromkeys((*_devices(text), *filter(None, map(_device, (found, others))))))
        return Message(
            complaint, named.get("argument"), _device(found), _device(others), devices, op, named.get("dtype")
        )
    devices = _devices(text)
    if (
        len(devices) == 2
        and _TOGETHER.search(text)
        and kind.rpartition(".")[2] in ("RuntimeError", "ValueError", "TypeError")
    ):
        return Message(Complaint.MISMATCH, devices=devices)
    return None


def _devices(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[1] for match in _DEVICE.finditer(text)))


_WORDS = {"CUDA": "cuda", "NVIDIA": "cuda", "HIP": "cuda", "XPU": "xpu", "MPS": "mps", "HPU": "hpu", "GPU": "cuda"}


def _device(word: str | None) -> str | None:
    return None if word is None else _WORDS.get(word, word)


def _of_type(name: str | None) -> str | None:
    """The device of a tensor's type: "torch.cuda.FloatTensor" is cuda, "MPSFloatType" is mps, "torch.FloatTensor" is cpu."""
    if name is None:
        return None
    if name in ("c10::Half", "float", "double", "int"):
        return None
    for word, device in _WORDS.items():
        if name.startswith((word, f"torch.{device}.")):
            return device
    return "cpu"


def _op_of(method: str) -> str:
    """The op of a generated wrapper: "addmm", "_fused_adam_", "mm" of "mm_out_out"."""
    for ending in ("_out_out", "_Tensor", "__value"):
        method = method.removesuffix(ending)
    return method
