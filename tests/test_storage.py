"""Places and records: one object for each device, bytes that come back when a storage dies."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from wherry import callsite
from wherry.rehearse import rehearse
from wherry.storage import Place, Resident, host, place_of, unmarked


def test_place_is_one_object_for_each_device() -> None:
    assert place_of(torch.device("cuda", 0)) is place_of(torch.device("cuda:0"))
    assert place_of(torch.device("cuda", 0)) is not place_of(torch.device("cuda", 1))
    assert place_of(torch.device("cpu")) is host()
    assert place_of(torch.device("cpu"), pinned=True) is not host()


def test_place_says_where_it_is() -> None:
    place = place_of(torch.device("xpu", 3))

    assert (place.name, place.type, place.index, place.device) == ("xpu:3", "xpu", 3, torch.device("xpu:3"))
    assert repr(place) == "<Place xpu:3>"
    assert repr(place_of(torch.device("cpu"), pinned=True)) == "<Place cpu pinned>"
    assert host().index is None


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
@pytest.mark.parametrize("pinned", [False, True])
def test_copy_of_a_place_is_the_place(twin: object, pinned: bool) -> None:
    place = place_of(torch.device("cpu"), pinned=pinned)

    assert twin(place) is place  # type: ignore[operator]


def test_threads_that_ask_at_once_get_one_place() -> None:
    meeting = threading.Barrier(8)
    found: list[Place] = []

    def ask() -> None:
        meeting.wait(timeout=20)
        found.append(place_of(torch.device("mps", 0)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_record_that_dies_gives_its_bytes_back() -> None:
    place = Place(torch.device("cuda", 0))
    place.allocated = 100

    record = Resident((place, None, -1, 40))
    del record

    assert place.allocated == 60


def test_storage_without_a_record_is_on_the_host() -> None:
    place, code, instruction = unmarked()

    assert place is host()
    assert callsite.site_of(code, instruction) is None


# What a rehearsal writes down


@pytest.fixture(autouse=True)
def _cuda() -> Iterator[None]:
    with rehearse("cuda", count=2):
        yield


def record_of(x: Tensor) -> tuple[Place, object, int]:
    return x.untyped_storage()._wherry_record[:3]  # type: ignore[attr-defined]


def made_at(x: Tensor) -> tuple[str, int] | None:
    _, code, instruction = record_of(x)
    site = callsite.site_of(code, instruction)  # type: ignore[arg-type]
    return None if site is None else (site.file, site.line)


def line() -> int:
    return sys._getframe(1).f_lineno


def test_record_names_the_line_that_made_the_storage() -> None:
    factory, first = torch.zeros(2, device="cuda"), line()
    moved, second = torch.zeros(2).to("cuda:1"), line()
    result, third = factory + 1, line()
    host_tensor, fourth = torch.zeros(2), line()

    assert [made_at(x) for x in (factory, moved, result, host_tensor)] == [
        (__file__, n) for n in (first, second, third, fourth)
    ]


def test_record_looks_past_torchs_own_frames() -> None:
    layer, here = torch.nn.Linear(2, 2, device="cuda"), line()
    out, there = layer(torch.zeros(1, 2, device="cuda")), line()

    assert made_at(layer.weight) == (__file__, here)
    assert made_at(out) == (__file__, there)


def test_movement_of_a_module_names_the_line_that_moved_it() -> None:
    layer = torch.nn.Linear(2, 2)
    here = line() + 1
    layer.to("cuda")

    assert made_at(layer.weight) == (__file__, here)


def test_view_has_the_record_of_its_base() -> None:
    x = torch.zeros(4, device="cuda:1")

    assert record_of(x[1:]) == record_of(x.detach()) == record_of(x)


def test_record_keeps_no_frame_alive() -> None:
    class Local:
        pass

    def make() -> tuple[Tensor, object]:
        import weakref

        kept = Local()
        return torch.zeros(2, device="cuda"), weakref.ref(kept)

    x, local = make()
    gc.collect()

    assert x.is_cuda
    assert local() is None  # type: ignore[operator]
