"""The texts of device errors, of every release and backend that words them in a way of its own."""

from __future__ import annotations

import pytest

from wherry.explain.message import Complaint, read

TWO = "Expected all tensors to be on the same device"
# Text, complaint, argument, found, others.
TEXTS = (
    (f"{TWO}, but found at least two devices, cuda:0 and cpu!", Complaint.MISMATCH, None, "cpu", "cuda:0"),
    (
        f"{TWO}, but found at least two devices, cuda:0 and cpu! (when checking argument for argument min in method "
        "wrapper_CUDA_clamp_Tensor)",
        Complaint.MISMATCH,
        "min",
        "cpu",
        "cuda:0",
    ),
    (
        f"{TWO}, but got mat1 is on cuda:0, different from other tensors on cpu (when checking argument in method "
        "wrapper_CUDA_addmm)",
        Complaint.MISMATCH,
        "mat1",
        "cuda:0",
        "cpu",
    ),
    (
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
        Complaint.MISMATCH,
        "weight",
        "cpu",
        "cuda",
    ),
    (
        "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same",
        Complaint.MISMATCH,
        "weight",
        "mps",
        "cpu",
    ),
    (
        "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu",
        Complaint.MISMATCH,
        "hidden",
        "cpu",
        "cuda:0",
    ),
    (
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
        Complaint.MISMATCH,
        None,
        "cpu",
        None,
    ),
    ("Placeholder storage has not been allocated on MPS device!", Complaint.MISMATCH, None, None, None),
    (
        "can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
        Complaint.NUMPY,
        None,
        "mps:0",
        None,
    ),
    (
        "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
        Complaint.HOST_ONLY,
        "lengths",
        "cuda:0",
        None,
    ),
    ("Expected a 'cuda' device type for generator but found 'cpu'", Complaint.GENERATOR, None, "cpu", "cuda"),
    (
        "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
        Complaint.PINNING,
        None,
        "cuda",
        None,
    ),
    (
        "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 "
        "instead.",
        Complaint.DTYPE,
        None,
        None,
        "mps",
    ),
    ("Required aspect fp64 is not supported on the device", Complaint.DTYPE, None, None, None),
    ("Kernel is incompatible with all devices in devs", Complaint.DTYPE, None, None, None),
    ("Torch not compiled with CUDA enabled", Complaint.ABSENT, None, "cuda", None),
    ("PyTorch is not linked with support for mps devices", Complaint.ABSENT, None, "mps", None),
    (
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
        Complaint.CHECKPOINT,
        None,
        "cuda",
        None,
    ),
    ("CUDA error: invalid device ordinal", Complaint.ORDINAL, None, "cuda", None),
    (
        "Function ReverseBackward returned an invalid gradient at index 0 - expected device cuda:0 but got cpu",
        Complaint.GRADIENT,
        None,
        "cpu",
        "cuda:0",
    ),
    (
        "The operator 'aten::_ctc_loss' is not currently implemented for the MPS device. If you want this op",
        Complaint.KERNEL,
        None,
        None,
        "mps",
    ),
    (
        "Expected condition, x and y to be on the same device, but condition is on cpu and x and y are on cuda:0",
        Complaint.MISMATCH,
        None,
        None,
        None,
    ),
)


@pytest.mark.parametrize(("text", "complaint", "argument", "found", "others"), TEXTS, ids=[t[0][:50] for t in TEXTS])
def test_a_text_is_taken_apart(
    text: str, complaint: Complaint, argument: object, found: object, others: object
) -> None:
    message = read("RuntimeError", text)

    assert message is not None
    assert (message.complaint, message.argument, message.found, message.others) == (complaint, argument, found, others)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ValueError", "too many values to unpack (expected 2)"),
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB"),
        ("KeyError", "'cuda'"),
        ("AssertionError", f"assert '{TWO}, but found at least two devices, cuda:0 and cpu!' == ''"),
        ("ConnectionError", "device cpu of host cuda did not answer"),
        ("RuntimeError", ""),
        ("ValueError", "device must be 'cpu', 'cuda' or 'mps', got 'gpu'"),
        (
            "RuntimeError",
            "Expected one of cpu, cuda, ipu, xpu, mkldnn, hip, mps, meta device type at start of device string: gpu",
        ),
        ("RuntimeError", "HTTP 500: device 'cpu' offline; device 'cuda' offline"),
        ("RuntimeError", "NCCL error: unhandled cuda error, device cpu"),
        ("RuntimeError", "results on device differ: cpu 0.5 vs cuda 0.7"),
        ("RuntimeError", "found at least two devices named kitchen"),
        ("KeyError", "Invalid device id"),
        ("OSError", "device index is out of range"),
        ("NotImplementedError", "Could not run 'aten::linalg_inv_ex' with arguments from the 'SparseCPU' backend."),
    ],
)
def test_other_errors_are_not_about_devices(kind: str, text: str) -> None:
    assert read(kind, text) is None


def test_the_op_is_read_off_the_wrapper() -> None:
    for method, op in (
        ("wrapper_CUDA_addmm", "addmm"),
        ("wrapper_CUDA__index_select", "index_select"),
        ("wrapper_XPU_mm", "mm"),
    ):
        where = f"(when checking argument in method {method})"
        message = read("RuntimeError", f"{TWO}, but got self is on cpu, different from other tensors on cuda:0 {where}")
        assert message is not None
        assert message.op == op
