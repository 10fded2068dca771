"""Every operator of PyTorch's own database, with each of its tensors in turn on another device than the others.

Two judges: the host code of the real CUDA build, whose answers to the same samples stand in
`tests/data/mismatch_matrix.json`, word for word; and `FakeTensorMode`, which says only whether tensors may meet, by rules
of its own (torch/_subclasses/fake_tensor.py, fake_impls.py). Where the two differ the real code is right, and the table
below says in what FakeTensorMode differs.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from wherry.rehearse import laws, rehearse
from wherry.rehearse.wording import torch_release

# The database leans on names that warn, which is its own business.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("database"),
    pytest.mark.skipif(torch_release() != (2, 13), reason="the answers are those of torch 2.13, to its own samples"),
]

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "mismatch_matrix.json").read_text(encoding="utf-8"))
ENTRIES = {op.formatted_name: op for op in op_db if op.supports_dtype(torch.float32, "cpu")}

SAMPLES_LOOKED_AT, SMALL, OPERANDS = 40, 4096, 8
"""Of the first samples with two tensors or more, two small ones are taken, and of their tensors the first eight."""

PLACEMENTS = (("cuda:0", "cpu"), ("cuda:0", "cuda:1"), ("cpu", "cuda:0"))
"""Where all tensors are but one, and where that one is."""

_JIT = "a kernel written in CUDA cannot run in a rehearsal, which says so before it looks at the tensors"
NOT_YET: dict[str, str] = {
    **dict.fromkeys(
        (
            "jiterator_binary",
            "jiterator_4inputs_with_extra_args",
            "jiterator_binary_return_by_ref",
            "jiterator_2inputs_2outputs",
        ),
        _JIT,
    ),
}
"""Entry -> why a rehearsal answers otherwise than the host code for now."""

_LAX_SCALAR = (
    "it lets a 0-dim tensor of the host meet any other, in whatever op (fake_tensor.py, `_find_common_device`)"
)
_STRICT_SCALAR = "it does not know which ops read or move a 0-dim operand of another device"
_STRICT_COPY = "it does not know that a scatter into a view is a copy, which joins any two devices"
_CONVOLUTION = "its rule for convolutions takes the device of the image and compares nothing (fake_impls.py, `conv`)"
FAKE_DIFFERS: dict[str, str] = {
    **dict.fromkeys(
        (
            "addr", "bucketize", "clamp_max", "clamp_min", "complex", "igamma", "igammac", "index_reduce_amax",
            "index_reduce_amin", "index_reduce_mean", "index_reduce_prod", "index_select", "logaddexp", "logical_and",
            "logical_or", "logical_xor", "nn_functional_binary_cross_entropy",
            "nn_functional_binary_cross_entropy_with_logits", "nn_functional_embedding", "nn_functional_mse_loss",
            "nn_functional_smooth_l1_loss", "nn_functional_soft_margin_loss", "normal", "polar",
        ),
        _LAX_SCALAR,
    ),
    **dict.fromkeys(
        (
            "linspace_tensor_overload", "logspace_tensor_overload", "masked_amax", "masked_amin", "masked_argmax",
            "masked_argmin", "masked_fill", "masked_logsumexp", "masked_mean", "masked_norm", "masked_prod", "masked_sum",
        ),
        _STRICT_SCALAR,
    ),
    **dict.fromkeys(("index_fill", "linalg_pinv"), f"{_LAX_SCALAR}; and {_STRICT_SCALAR}"),
    **dict.fromkeys(("as_strided_scatter", "select_scatter"), _STRICT_COPY),
    **dict.fromkeys((f"nn_functional_conv{kind}{dims}d" for kind in ("", "_transpose") for dims in "123"), _CONVOLUTION),
    **dict.fromkeys(
        ("nn_functional_linear_cross_entropy_chunked", "nn_functional_linear_cross_entropy_chunked_none"),
        "it is an op of a library, whose fake kernel makes results and compares nothing (torch_nn)",
    ),
    "native_dropout_backward": "its decomposition brings the mask to the gradient with type_as (torch/_decomp/decompositions.py)",
    "nn_functional_bilinear": "it compares the operands of aten::_trilinear, a composite that does nothing with an empty batch",
}  # fmt: skip
"""Entry -> in what FakeTensorMode differs from the host code of the CUDA build, which is right by definition."""

Sample = tuple[tuple[Any, ...], dict[str, Any]]


def tensors(sample: Sample) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(sample)[0] if isinstance(leaf, Tensor)]


def samples_of(entry: Any) -> list[Sample]:
    torch.manual_seed(0)
    inputs = itertools.islice(entry.sample_inputs("cpu", torch.float32, requires_grad=False), SAMPLES_LOOKED_AT)
    found = [((s.input, *s.args), s.kwargs) for s in inputs]
    found = [sample for sample in found if len(tensors(sample)) > 1]
    return sorted(found, key=lambda sample: sum(t.numel() for t in tensors(sample)) > SMALL)[:2]


def replaced(sample: Sample, by: list[Any]) -> Sample:
    """A sample with other tensors."""
    leaves, tree = tree_flatten(sample)
    others = iter(by)
    return tree_unflatten([next(others) if isinstance(leaf, Tensor) else leaf for leaf in leaves], tree)


def scrubbed(text: str) -> str:
    """The first line of a message, without the folder that PyTorch was built in."""
    return text.split("\n", 1)[0][:300].replace("/pytorch/", "<src>/")


def home_of(function: Any) -> tuple[Any, str] | None:
    """The module of torch that a program takes a function from, and its name there."""
    for module in (torch, torch.nn.functional, torch.linalg, torch.special):
        for name, value in vars(module).items():
            if value is function:
                return module, name
    return None


def said_in_rehearsal(entry: Any, sample: Sample, where: list[str]) -> str:
    """What a rehearsal objects, or "". The operator is called by its name, as a program would, not as it was on import."""
    home = HOMES.get(entry.formatted_name)
    with rehearse("cuda", count=2):
        function = entry if home is None else getattr(*home)
        moved = replaced(sample, [t.to(place) for t, place in zip(tensors(sample), where, strict=True)])
        try:
            function(*moved[0], **moved[1])
        except Exception as error:
            return scrubbed(str(error))
    return ""


HOMES = {name: home for name, op in ENTRIES.items() if (home := home_of(op.op)) is not None}


def said_by_fake(entry: Any, sample: Sample, where: list[str]) -> bool | None:
    """Whether FakeTensorMode objects; None where it cannot tell."""
    if any(t.layout != torch.strided or t.is_nested or t.is_quantized for t in tensors(sample)):
        return None
    with FakeTensorMode():
        try:
            fakes = [
                torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=place)
                for t, place in zip(tensors(sample), where, strict=True)
            ]
            moved = replaced(sample, fakes)
            entry(*moved[0], **moved[1])
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
            return None
        except Exception:
            return True
    return False


class Scene(NamedTuple):
    """One call with one tensor elsewhere, and what the judges say of it."""

    sample: int
    row: int
    position: int
    where: list[str]
    rehearsed: str
    recorded: str | None
    fake: bool | None

    @property
    def judged(self) -> bool:
        return self.recorded is not None or self.fake is not None


def scenes(name: str) -> Iterator[Scene]:
    """Every scene of an entry, played."""
    entry, recorded = ENTRIES[name], RECORDED["entries"][name]
    samples = samples_of(entry)
    assert [min(len(tensors(s)), OPERANDS) for s in samples] == [len(rows[0]) for rows in recorded]
    texts = ["", *RECORDED["texts"]]
    for number, sample in enumerate(samples):
        together = ["cuda:0"] * len(tensors(sample))
        fake_can_tell = said_by_fake(entry, sample, together) is False
        for row, (here, there) in enumerate(PLACEMENTS):
            for position in range(min(len(together), OPERANDS)):
                where = [here] * len(together)
                where[position] = there
                told = recorded[number][row][position]
                yield Scene(
                    number, row, position, where,
                    said_in_rehearsal(entry, sample, where),
                    None if told is None else texts[told],
                    said_by_fake(entry, sample, where) if fake_can_tell else None,
                )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.xfail(reason=NOT_YET[name], strict=True)] if name in NOT_YET else [])
        for name in RECORDED["entries"]
    ],
)
def test_operands_meet_as_on_the_cuda_build(name: str) -> None:
    played = list(scenes(name))

    assert {(s.row, s.position) for s in played} == {(s.row, s.position) for s in played if s.judged}
    assert [
        f"sample {s.sample} on {s.where}: {s.rehearsed!r} instead of {s.recorded!r}"
        for s in played
        if s.recorded is not None and s.rehearsed != s.recorded
    ] == []
    disputed = [
        f"sample {s.sample} on {s.where}: {s.rehearsed!r} where FakeTensorMode {'objects' if s.fake else 'does not'}"
        for s in played
        if s.fake is not None and s.fake != bool(s.rehearsed)
    ]
    assert bool(disputed) == (name in FAKE_DIFFERS), disputed


def test_every_entry_with_two_tensors_is_there() -> None:
    """Entries come and go with releases of torch; the answers are those of one."""
    assert {name for name, op in ENTRIES.items() if samples_of(op)} == set(RECORDED["entries"])


def test_tables_are_short_and_up_to_date() -> None:
    assert len(NOT_YET) <= 0.03 * len(RECORDED["entries"])
    assert set(NOT_YET) | set(FAKE_DIFFERS) <= set(RECORDED["entries"])


def test_stray_that_is_let_pass_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: without a law for them, operands of mm meet wherever they are."""
    monkeypatch.setattr(laws, "judge", lambda backend, func, operands, args, kwargs: operands[0].place)

    with pytest.raises(AssertionError, match="instead of"):
        test_operands_meet_as_on_the_cuda_build("mm")
