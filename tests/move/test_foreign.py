"""One tensor to NumPy, to MLX and back: the values, whose memory they are in, and what is refused."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import warnings

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import wherry
from wherry.errors import MissingExtra, Unconvertible
from wherry.move import foreign
from wherry.move.foreign import from_mlx, is_mlx, mlx_holds, numpy_holds, to_mlx, to_numpy

INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
OF_NUMPY = [*INTEGERS, "float16", "float32", "float64", "complex64", "complex128"]
OF_MLX = [*INTEGERS, "float16", "bfloat16", "float32", "float64", "complex64"]


def bits(tensor):
    return torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)).view(torch.uint8).tolist()


def sample(dtype):
    return torch.tensor([0, 1, 1, 0, 1, 0]).to(getattr(torch, dtype))


# To NumPy


@pytest.mark.parametrize("dtype", OF_NUMPY)
def test_numpy_array_shares_the_memory_of_a_tensor_on_the_host(dtype):
    tensor = sample(dtype)

    array = to_numpy(tensor)

    assert array.dtype.name == dtype
    assert numpy_holds(tensor.dtype)
    assert array.ctypes.data == tensor.data_ptr()


def test_the_pointer_tells_a_copy():
    """The twin: the test above would notice."""
    tensor = sample("float32")

    assert to_numpy(tensor).copy().ctypes.data != tensor.data_ptr()


def test_bfloat16_becomes_float32_for_numpy_and_comes_back_bit_by_bit():
    tensor = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    tensor = tensor[~tensor.isnan()]  # NaNs stay NaNs, which need not be the same

    array = to_numpy(tensor)

    assert array.dtype == np.float32
    assert not numpy_holds(torch.bfloat16)
    assert bits(torch.from_numpy(array).bfloat16()) == bits(tensor)


def test_strides_are_kept_for_numpy():
    tensor = torch.arange(24).view(2, 3, 4)[:, ::2].transpose(0, 2)

    array = to_numpy(tensor)

    assert array.tolist() == tensor.tolist()
    assert array.strides == tuple(8 * stride for stride in tensor.stride())


def test_conjugates_and_negatives_have_their_values_in_numpy():
    tensor = torch.tensor([1 + 2j]).conj()

    assert to_numpy(tensor).tolist() == [1 - 2j]
    assert to_numpy(tensor.imag).tolist() == [-2]


def test_a_gradient_is_left_behind():
    assert to_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_numpy_array_of_a_virtual_device_is_a_copy(device):
    with wherry.rehearse(device):
        tensor = torch.arange(6.0, device=device).view(2, 3)
        array = to_numpy(tensor.t().expand(2, 3, 2))
        tensor.zero_()

    assert array.tolist() == [[[0, 3], [1, 4], [2, 5]]] * 2
    assert array.strides[0] == 0  # what was expanded crosses once


class Plain(torch.Tensor):
    """A subclass that only carries a name."""


class Answers(torch.Tensor):
    """A subclass that answers every operator itself."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with torch._C._DisableTorchDispatch():
            return torch.Tensor._make_subclass(cls, args[0].as_subclass(torch.Tensor))


class Wraps(torch.Tensor):
    """A subclass whose values are in another tensor."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


@pytest.mark.parametrize("tensor", [torch.nn.Parameter(torch.ones(2)), torch.ones(2).as_subclass(Plain)])
def test_a_subclass_is_taken_for_its_data(tensor):
    assert to_numpy(tensor).ctypes.data == tensor.data_ptr()


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def nested(**options):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], **options)


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.13 deprecates it
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)


REFUSED = [
    ("meta", lambda: torch.ones(2, device="meta"), "A meta tensor cannot become X: it has a shape but no values."),
    ("fake", fake, "A FakeTensor cannot become X: it has a shape but no values."),
    (
        "sparse",
        lambda: torch.eye(2).to_sparse(),
        "A tensor of layout sparse_coo cannot become X: its layout is sparse_coo, not strided. Use tensor.to_dense().",
    ),
    ("mkldnn", lambda: torch.eye(2).to_mkldnn(), "A tensor of layout mkldnn cannot become X"),
    ("nested", nested, "A nested tensor cannot become X: its rows differ in length. Use tensor.to_padded_tensor(0.0)"),
    ("jagged", lambda: nested(layout=torch.jagged), "A nested tensor cannot become X"),
    ("quantized", quantized, "A quantized tensor cannot become X"),
    (
        "float8",
        lambda: torch.ones(2).to(torch.float8_e4m3fn),
        "A float8_e4m3fn tensor cannot become X: Y has no float8_e4m3fn. Use tensor.to(torch.float32) and multiply by",
    ),
    (
        "complex32",
        lambda: torch.zeros(2, dtype=torch.complex32),
        "A complex32 tensor cannot become X: Y has no complex32. Use tensor.to(torch.complex64).",
    ),
    ("wrapper", lambda: Wraps(torch.ones(2)), "A tensor of the class Wraps cannot become X"),
    ("dispatch", lambda: torch.ones(2).as_subclass(Answers), "A tensor of the class Answers cannot become X"),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize(("make", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_numpy_cannot_hold_is_refused_with_a_way_out(make, text):
    with pytest.raises(Unconvertible) as refused:
        to_numpy(make())

    assert str(refused.value).startswith(text.replace("X", "a NumPy array").replace("Y", "NumPy"))
    assert isinstance(refused.value, TypeError)


def test_a_tensor_inside_of_vmap_is_refused():
    with pytest.raises(Unconvertible, match="inside of vmap"):
        torch.vmap(to_numpy)(torch.ones(2, 2))


# Without MLX


@pytest.mark.parametrize("call", [lambda: to_mlx(torch.ones(2)), lambda: mlx_holds(torch.float64)])
def test_without_mlx_the_error_says_how_to_get_it(monkeypatch, call):
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    monkeypatch.setattr(foreign, "_platform_note", lambda: None)

    with pytest.raises(MissingExtra) as missing:
        call()

    assert str(missing.value) == 'MLX is not installed. Install it with: pip install "wherry[mlx]"'
    assert (missing.value.package, missing.value.extra) == ("MLX", "mlx")


def test_a_broken_mlx_is_told_apart_from_an_absent_one(monkeypatch, tmp_path):
    package = tmp_path / "mlx"
    package.mkdir()
    (package / "core.py").write_text("raise ImportError('libmlx.so: cannot open shared object file')\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    (package / "__init__.py").write_text("")

    with pytest.raises(MissingExtra, match="does not import: libmlx.so"):
        to_mlx(torch.ones(2))

    sys.modules.pop("mlx", None)


@pytest.mark.parametrize(
    ("system", "machine", "libc", "built"),
    [
        ("darwin", "arm64", ("", ""), True),
        ("darwin", "x86_64", ("", ""), False),
        ("linux", "x86_64", ("glibc", "2.36"), True),
        ("linux", "x86_64", ("glibc", "2.4"), False),
        ("linux", "x86_64", ("", ""), False),
        ("win32", "AMD64", ("", ""), False),
    ],
)
def test_a_machine_that_mlx_is_not_built_for_is_told(monkeypatch, system, machine, libc, built):
    monkeypatch.setattr(foreign.sys, "platform", system)
    monkeypatch.setattr(foreign.platform, "machine", lambda: machine)
    monkeypatch.setattr(foreign.platform, "libc_ver", lambda: libc)

    assert (foreign._platform_note() is None) == built


def test_without_mlx_nothing_is_an_mlx_array(monkeypatch):
    monkeypatch.delitem(sys.modules, "mlx.core", raising=False)

    assert not is_mlx(torch.ones(2))


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "imported"), [("is_mlx(3)", False), ("mlx_holds(torch.float64)", True)])
def test_asking_for_an_mlx_array_imports_no_mlx(folder, statement, imported):
    """The second row is the twin: it would be noticed."""
    if imported:
        pytest.importorskip("mlx.core", reason="MLX is not installed: the twin imports it")
    program = f"import sys, torch\nfrom wherry.move.foreign import *\n{statement}\nprint('mlx.core' in sys.modules)"

    assert folder.python("-c", program).stdout == f"{imported}\n"


# To MLX and back


@pytest.fixture
def mx():
    return pytest.importorskip("mlx.core", reason="MLX is not installed: pip install 'wherry[mlx]'")


def address(array):
    """Where the memory of a contiguous MLX array begins."""
    return torch.frombuffer(array, dtype=torch.uint8).data_ptr()


@pytest.mark.parametrize("dtype", OF_MLX)
def test_every_dtype_of_mlx_arrives_as_it_is_and_back(mx, dtype):
    tensor = sample(dtype)

    array = to_mlx(tensor)
    back = from_mlx(array)

    assert str(array.dtype) == f"mlx.core.{dtype}"
    assert mlx_holds(tensor.dtype)
    assert back.dtype == tensor.dtype
    assert bits(back) == bits(tensor)


@pytest.mark.parametrize("dtype", OF_MLX)
def test_a_tensor_shares_the_memory_of_the_mlx_array(mx, dtype):
    array = to_mlx(sample(dtype))

    assert from_mlx(array).data_ptr() == address(array)


def test_the_pointer_tells_a_copy_of_an_mlx_array(mx):
    """The twin: the test above would notice."""
    array = to_mlx(sample("float32"))

    assert from_mlx(array).clone().data_ptr() != address(array)


DTYPES = st.sampled_from([getattr(torch, name) for name in OF_MLX])
STEPS = st.sampled_from(["transpose", "every second", "from the second", "expand", "first", "unsqueeze"])


@st.composite
def tensors(draw):
    """Of any shape, dtype and bits, seen through a few views."""
    dtype = draw(DTYPES)
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    nbytes = torch.Size(shape).numel() * dtype.itemsize
    data = torch.frombuffer(bytearray(draw(st.binary(min_size=nbytes, max_size=nbytes)) + b"\0"), dtype=torch.uint8)
    raw = data[:nbytes].clone()
    tensor = (raw > 127 if dtype is torch.bool else raw.view(dtype)).view(shape)
    for step in draw(st.lists(STEPS, max_size=4)):
        tensor = seen(tensor, step)
    return tensor


def seen(tensor, step):
    if tensor.dim() == 0:
        return tensor.expand(3) if step == "expand" else tensor
    return {
        "transpose": lambda: tensor.transpose(0, -1),
        "every second": lambda: tensor[..., ::2],
        "from the second": lambda: tensor[1:],
        "expand": lambda: tensor.expand(2, *tensor.shape),
        "first": lambda: tensor.select(0, 0) if len(tensor) else tensor,
        "unsqueeze": lambda: tensor.unsqueeze(-1),
    }[step]()


@hypothesis.given(tensor=tensors())
def test_a_round_trip_over_mlx_keeps_every_bit(tensor):
    pytest.importorskip("mlx.core", reason="MLX is not installed: pip install 'wherry[mlx]'")

    back = from_mlx(to_mlx(tensor))

    assert (back.shape, back.dtype) == (tensor.shape, tensor.dtype)
    assert bits(back) == bits(tensor)


@hypothesis.given(tensor=tensors())
def test_a_round_trip_over_mlx_from_a_virtual_device_keeps_every_bit(tensor):
    pytest.importorskip("mlx.core", reason="MLX is not installed: pip install 'wherry[mlx]'")

    with wherry.rehearse("cuda"):
        back = from_mlx(to_mlx(tensor.cuda()))
        device = back.device.type

    assert device == "cpu"
    assert (back.shape, back.dtype) == (tensor.shape, tensor.dtype)
    assert bits(back) == bits(tensor)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_host_tensor_of_a_rehearsal_is_copied_to_mlx(mx, pinned):
    with wherry.rehearse("cuda"):
        tensor = torch.arange(4.0, pin_memory=pinned)
        back = from_mlx(to_mlx(tensor))

        assert back.device.type == "cpu"
        assert back.equal(tensor)
        assert back.data_ptr() != tensor.data_ptr()
        with pytest.raises(RuntimeError, match="same device"):
            back + tensor.cuda()


def test_an_mlx_array_is_not_changed_by_what_is_written_to_the_tensor(mx):
    for tensor in torch.arange(4.0), torch.arange(4.0).view(2, 2).t(), torch.arange(8.0)[::2]:
        before = tensor.tolist()
        array = to_mlx(tensor)

        tensor.fill_(9)

        assert array.tolist() == before


def test_conjugates_and_negatives_have_their_values_in_mlx(mx):
    tensor = torch.tensor([1 + 2j]).conj()

    assert to_mlx(tensor).tolist() == [1 - 2j]
    assert to_mlx(tensor.imag).tolist() == [-2]


def test_mlx_itself_drops_the_conjugation_and_the_negation(mx):
    """The fault that the test above is about."""
    tensor = torch.tensor([1 + 2j]).conj()

    assert mx.array(tensor).tolist() == [1 + 2j]
    assert mx.array(tensor.imag).tolist() == [2]


@pytest.mark.parametrize(("dtype", "narrow"), [("float64", "float32"), ("complex128", "complex64")])
def test_mlx_itself_narrows_without_a_word(mx, dtype, narrow):
    """Why the dtype is always said."""
    assert str(mx.array(sample(dtype)).dtype) == f"mlx.core.{narrow}"


def test_numpy_itself_is_no_way_for_bfloat16_and_uint64(mx):
    """Why from_mlx goes by the bits of the one, and names the dtype of the other."""
    with pytest.raises((ValueError, RuntimeError), match="buffer format string"):
        np.asarray(to_mlx(sample("bfloat16")))
    if sys.platform == "linux":  # where uint64 is C's unsigned long
        with pytest.raises(TypeError, match="ulonglong"):
            torch.from_numpy(np.asarray(to_mlx(sample("uint64"))))


def test_expanded_dimensions_take_no_memory_in_mlx(mx):
    array = to_mlx(torch.arange(3.0).expand(1000, 3))

    assert array.nbytes == 12_000
    assert np.asarray(array).strides == (0, 4)
    assert from_mlx(array).stride() == (0, 1)


def test_permuted_dimensions_stay_permuted_in_mlx(mx):
    tensor = torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last)

    array = to_mlx(tensor)

    assert array.tolist() == tensor.tolist()
    assert from_mlx(array).stride() == tensor.stride()


@pytest.mark.parametrize("tensor", [torch.arange(4.0), torch.arange(8.0)[::2]])
@pytest.mark.parametrize("around", [torch.inference_mode, torch.enable_grad, lambda: torch.device("meta")])
def test_what_the_program_has_switched_on_changes_nothing(mx, tensor, around):
    with around():
        back = from_mlx(to_mlx(tensor))
        array = to_numpy(tensor)

    assert back.tolist() == tensor.tolist()
    assert array.tolist() == tensor.tolist()


def test_a_gradient_and_a_subclass_are_left_behind(mx):
    array = to_mlx(torch.nn.Parameter(torch.ones(2)))

    assert array.tolist() == [1, 1]
    assert not from_mlx(array).requires_grad


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize(("make", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_mlx_cannot_hold_is_refused_with_a_way_out(mx, make, text):
    with pytest.raises(Unconvertible) as refused:
        to_mlx(make())

    assert str(refused.value).startswith(text.replace("X", "an MLX array").replace("Y", "MLX"))


def test_complex128_is_refused_by_mlx(mx):
    with pytest.raises(Unconvertible) as refused:
        to_mlx(torch.ones(2, dtype=torch.complex128))

    assert str(refused.value) == (
        "A complex128 tensor cannot become an MLX array: MLX has no complex128. Use tensor.to(torch.complex64)."
    )


def test_float64_is_exact_where_mlx_computes_on_the_cpu(mx, monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu))

    assert from_mlx(to_mlx(torch.tensor([1 / 3], dtype=torch.float64))).item() == 1 / 3
    assert mlx_holds(torch.float64)


def test_float64_becomes_float32_where_mlx_computes_on_a_gpu(mx, monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))

    for tensor in torch.tensor([1 / 3], dtype=torch.float64), torch.full((2,), 1 / 3, dtype=torch.float64)[::2]:
        assert from_mlx(to_mlx(tensor)).tolist() == torch.tensor([1 / 3]).tolist()
    assert not mlx_holds(torch.float64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_views_of_mlx_keep_their_strides_and_share(mx, dtype):
    array = mx.arange(24).reshape(2, 3, 4).astype(getattr(mx, dtype))
    views = [array.T, array[:, ::2, 1:3], mx.broadcast_to(array[0, 0], (2, 4)), array[:0], array[1, 2, 3]]
    tensor = from_mlx(array)
    first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes

    for view in views:
        mx.eval(view)
        back = from_mlx(view)

        assert back.tolist() == view.tolist()
        assert back.numel() == 0 or first <= back.data_ptr() < last


def test_torch_frombuffer_ignores_the_strides_of_mlx(mx):
    """The fault that the test above is about."""
    array = mx.arange(6).reshape(2, 3).T

    assert torch.frombuffer(array, dtype=torch.int32).tolist() != array.flatten().tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_mlx_array_with_a_negative_stride_is_copied(mx, dtype):
    array = mx.arange(6).reshape(2, 3).astype(getattr(mx, dtype))[::-1]

    assert from_mlx(array).tolist() == [[3, 4, 5], [0, 1, 2]]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGABRT is a status of POSIX")
def test_torch_from_dlpack_ends_the_process_at_a_negative_stride(mx, folder):
    """The fault that the test above is about."""
    done = folder.python("-c", "import mlx.core as mx, torch\ntorch.from_dlpack(mx.arange(6)[::-1])")

    assert done.status == -signal.SIGABRT


def test_an_mlx_array_not_yet_computed_is_computed(mx):
    assert from_mlx(mx.ones((2,)) + 1).tolist() == [2, 2]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_tensor_keeps_the_memory_of_the_mlx_array_alive(mx, dtype):
    gc.collect()  # what other tests left
    before = mx.get_active_memory()
    array = mx.full((1 << 20,), 3, dtype=getattr(mx, dtype))
    tensor = from_mlx(array)[1:]
    nbytes = array.nbytes

    del array
    gc.collect()

    assert mx.get_active_memory() - before == nbytes
    assert tensor.eq(3).all()

    del tensor
    gc.collect()

    assert mx.get_active_memory() == before


def change(array):
    array += 1
    return array


def overwrite(array):
    array[0] = 5
    return array


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("update", [change, overwrite])
def test_what_is_done_to_the_mlx_array_later_does_not_reach_the_tensor(mx, dtype, update):
    array = mx.ones((1 << 16,), dtype=getattr(mx, dtype))
    tensor = from_mlx(array)

    mx.eval(update(array), [mx.full((1 << 16,), 7, dtype=array.dtype) for _ in range(4)])

    assert tensor.eq(1).all()
    assert array[0].item() != 1


def test_a_numpy_view_of_mlx_does_not_hold_its_memory(mx):
    """The fault that the test above is about: MLX takes the memory for its own and writes into it."""
    array = mx.ones((1 << 16,))
    mx.eval(array)
    tensor = torch.from_numpy(np.asarray(array))

    mx.eval(change(array))

    assert tensor.eq(2).all()


def test_a_write_to_the_tensor_is_seen_in_the_mlx_array(mx):
    """They are one memory; the page says not to."""
    array = mx.zeros((2,))

    from_mlx(array)[0] = 5

    assert array.tolist() == [5, 0]


def test_only_mlx_arrays_are_mlx_arrays(mx):
    assert is_mlx(mx.zeros((2,)))
    assert not is_mlx(torch.zeros(2))
    with pytest.raises(Unconvertible, match="A torch.Tensor cannot become a tensor: it is no MLX array"):
        from_mlx(torch.zeros(2))


def in_a_thread(call):
    answers = []

    def run():
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


@pytest.mark.parametrize("tensor", [torch.arange(4.0), torch.arange(8.0)[::2], torch.arange(2.0).expand(2, 2)])
def test_what_one_thread_converted_another_can_use(mx, tensor):
    array = in_a_thread(lambda: to_mlx(tensor))

    assert from_mlx(array).equal(tensor)
    assert in_a_thread(lambda: from_mlx(array)).equal(tensor)
    assert in_a_thread(lambda: from_mlx(to_mlx(tensor.bfloat16()))).equal(tensor.bfloat16())


def test_an_mlx_array_that_another_thread_has_to_compute_is_refused(mx):
    if not hasattr(mx, "ThreadLocalStream"):
        pytest.skip("an MLX this old computes what another thread asked for")
    array = mx.ones((2,)) + 1

    assert str(in_a_thread(lambda: from_mlx(array))) == (
        "An MLX array that is not computed yet cannot become a tensor in this thread: another thread made it, whose "
        "streams alone can compute it. Call mx.eval(array) in that thread first."
    )


PEAK = """
import mlx.core as mx, torch, wherry
from pathlib import Path
from wherry.move.foreign import *

def most():  # MiB. Not getrusage: its maximum begins with that of the process which started this one.
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 2**10

def source(device="cpu", dtype=torch.float32):
    return torch.ones(2**26 // dtype.itemsize, device=device, dtype=dtype)

def peak(before, convert):
    convert(before[:2])  # loads what is loaded late
    start = most()
    after = convert(before)  # kept until it is counted
    return most() - start

"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how much memory a process had at most")
@pytest.mark.parametrize(
    ("statement", "mib"),
    [
        ("peak(source(dtype=torch.bfloat16), to_mlx)", 64),
        ("peak(source().view(4096, 4096).t(), to_mlx)", 64),
        ("peak(source()[::4096], to_mlx)", 0),
        ("peak(mx.ones(2**25, dtype=mx.bfloat16).reshape(4096, 8192).T, from_mlx)", 0),
        # From a device: the movement to the host is the copy.
        ("wherry.rehearse('mps').__enter__() and peak(source('mps'), to_mlx)", 64),
        ("wherry.rehearse('mps').__enter__() and peak(source('mps'), to_numpy)", 64),
        # The twins: another copy would be noticed.
        ("peak(source(), lambda t: to_mlx(t.clone()))", 128),
        ("peak(mx.ones(2**24), lambda a: from_mlx(a).clone())", 64),
    ],
)
def test_64_mib_take_one_copy_there_and_none_back(mx, folder, statement, mib):
    done = folder.python("-c", PEAK + f"print({statement})")

    assert done.status == 0, done.stderr
    assert float(done.stdout) == pytest.approx(mib, abs=8)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how much memory a process had at most")
def test_mlx_itself_copies_all_that_a_slice_spans(mx, folder):
    """The fault that the row with a slice is about."""
    if not hasattr(mx, "from_dlpack"):
        pytest.skip("an MLX this old copies a slice twice instead")

    done = folder.python("-c", PEAK + "print(peak(source()[::4096], mx.array))")

    assert float(done.stdout) == pytest.approx(64, abs=8)
