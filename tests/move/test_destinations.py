"""Nested objects to the arrays of other libraries, and back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from wherry import UnmovableLeaf, move, rehearse
from wherry.move import foreign


@pytest.fixture
def mx() -> Any:
    return pytest.importorskip("mlx.core", reason="MLX is not installed: pip install 'wherry[mlx]'")


def test_a_batch_goes_to_mlx_and_back_whole(mx: Any) -> None:
    x = torch.arange(6.0).view(2, 3)
    batch = {"x": x, "again": x, "half": (x.bfloat16(), None), "rows": OrderedDict(first=x[0], empty=x[:0])}

    arrays = move(batch, "mlx")
    back = move(arrays, "cpu")

    assert arrays["again"] is arrays["x"]
    assert isinstance(arrays["half"][0], mx.array)
    assert back["again"] is back["x"]
    assert (back["half"][0].dtype, back["half"][1]) == (torch.bfloat16, None)
    assert back["rows"]["first"].equal(x[0])
    assert move(arrays, "mlx") is arrays


def test_what_is_on_a_device_goes_to_mlx_without_a_copy_on_the_host(mx: Any) -> None:
    with rehearse("mps") as rehearsal:
        there = [torch.ones(4, device="mps"), torch.ones(4, device="mps").half()]
        arrays = move(there, "mlx")

        assert [array.tolist() for array in arrays] == [[1.0] * 4] * 2
        assert rehearsal.statistics().d2h_nbytes == 24
        assert move(there, "mlx", dtype=torch.float16)[0].dtype == mx.float16


def test_arrays_of_mlx_become_tensors_wherever_they_go(mx: Any) -> None:
    with rehearse("mps"):
        moved = move({"x": mx.array([1.0, 2.0])}, "mps")

        assert (moved["x"].device.type, moved["x"].tolist()) == ("mps", [1.0, 2.0])
    assert move([mx.array([1])], "numpy")[0].tolist() == [1]


@pytest.mark.parametrize("library", ["numpy", "mlx"])
def test_what_computes_with_tensors_is_refused(library: str) -> None:
    if library == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed: pip install 'wherry[mlx]'")

    with pytest.raises(UnmovableLeaf, match=r"model'\] cannot move to .*Move its state_dict"):
        move({"model": nn.Linear(1, 1)}, library)
    with pytest.raises(UnmovableLeaf, match=r"obj\['x'\] cannot move to .* no values"):
        move({"x": torch.ones(2, device="meta")}, library)


def test_float64_is_told_where_mlx_computes_none(mx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"x": torch.ones(2, dtype=torch.float64)}
    assert move(batch, "mlx")["x"].dtype == mx.float64  # MLX computes on the CPU here

    monkeypatch.setattr(foreign, "_computes_float64", lambda _: False)

    with pytest.warns(UserWarning, match=r"batch\['x'\] became float32 on the way to mlx: mlx has no float64"):
        assert move(batch, "mlx")["x"].dtype == mx.float32
    with pytest.raises(UnmovableLeaf, match=r"batch\['x'\] cannot move to mlx: mlx has no float64"):
        move(batch, "mlx", float64="error")
