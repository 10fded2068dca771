"""Rehearsals that tests start from: one of each accelerator, and machines with two devices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wherry.rehearse import Rehearsal, rehearse


@pytest.fixture(params=["cuda", "rocm", "mps", "xpu"])
def on(request: pytest.FixtureRequest) -> Iterator[Rehearsal]:
    """A rehearsal that is on, of one backend after another. Operators that it has no kernel for go through the CPU."""
    with rehearse(request.param, fallback=True) as rehearsal:
        yield rehearsal


@pytest.fixture
def device(on: Rehearsal) -> str:
    """The device of a rehearsal that is on: "cuda:0", "mps:0", "xpu:0"."""
    return on.device


@pytest.fixture(params=["cuda", "rocm", "xpu"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The two devices of a rehearsal that is on."""
    with rehearse(request.param, count=2) as rehearsal:
        yield (rehearsal.places[0].name, rehearsal.places[1].name)


@pytest.fixture
def cuda() -> Iterator[Rehearsal]:
    """A rehearsal of two CUDA devices, where the words are CUDA's own."""
    with rehearse("cuda", count=2) as rehearsal:
        yield rehearsal


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's databases, without their look through the whole stack for a unittest to report to.

    It takes most of the time when there is none. Not imported above, since it takes a second and few tests need it.
    """
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    for module in (common_utils, core):
        monkeypatch.setattr(module, "extract_test_fn", lambda: None)
