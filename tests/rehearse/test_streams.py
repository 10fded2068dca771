"""Streams, events and the other things of a device that only keep book in a rehearsal."""

from __future__ import annotations

import pytest
import torch

from wherry.rehearse import Rehearsal, rehearse

NAMESPACES = ("cuda", "rocm", "xpu")


@pytest.mark.parametrize("name", NAMESPACES)
def test_current_stream_is_the_default_one_at_first(name: str) -> None:
    with rehearse(name) as rehearsal:
        namespace = torch.get_device_module(rehearsal.device)

        assert namespace.current_stream() == namespace.current_stream()
        assert namespace.current_stream().device == torch.device(rehearsal.device)


@pytest.mark.parametrize("name", NAMESPACES)
def test_stream_is_current_inside_its_block(name: str) -> None:
    with rehearse(name) as rehearsal:
        namespace = torch.get_device_module(rehearsal.device)
        stream = namespace.Stream()
        before = namespace.current_stream()

        with namespace.stream(stream):
            assert namespace.current_stream() == stream
            with namespace.stream(None):
                assert namespace.current_stream() == stream
        assert namespace.current_stream() == before != stream

        with stream:
            assert namespace.current_stream() == stream
        assert namespace.current_stream() == before


def test_streams_are_told_apart(cuda: Rehearsal) -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()

    assert first != second
    assert len({first, second}) == 2
    assert isinstance(first, torch.cuda.Stream)
    assert first.cuda_stream != second.cuda_stream
    assert torch.cuda.Stream(device=1).device == torch.device("cuda:1")
    assert torch.cuda.default_stream() == torch.cuda.current_stream()
    assert first.priority == 0
    assert torch.cuda.Stream(priority=-1).priority == -1


def test_stream_of_another_device_leaves_the_current_device_as_torch_does(cuda: Rehearsal) -> None:
    with torch.cuda.stream(torch.cuda.Stream(device=1)):
        inside = torch.cuda.current_device()

    assert inside == 1
    assert torch.cuda.current_device() == 0


def test_streams_wait_for_each_other(cuda: Rehearsal) -> None:
    stream = torch.cuda.Stream()
    x = torch.ones(4, device="cuda")

    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x * 2
    event = stream.record_event()
    torch.cuda.current_stream().wait_event(event)
    y.record_stream(torch.cuda.current_stream())
    stream.synchronize()
    torch.cuda.synchronize()

    assert stream.query()
    assert event.query()
    assert y.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("name", NAMESPACES)
def test_time_passes_between_two_events(name: str) -> None:
    with rehearse(name) as rehearsal:
        namespace = torch.get_device_module(rehearsal.device)
        start, end = namespace.Event(enable_timing=True), namespace.Event(enable_timing=True)

        start.record()
        torch.ones(1000, device=rehearsal.device).sum()
        end.record()
        namespace.synchronize()

        assert start.elapsed_time(end) > 0
        assert isinstance(start, namespace.Event)


def test_time_of_a_mac_passes_between_two_events() -> None:
    with rehearse("mps"):
        start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
        start.record()
        end.record()
        end.synchronize()

        assert start.elapsed_time(end) >= 0


def test_events_that_keep_no_time_refuse_to_tell_it(cuda: Rehearsal) -> None:
    first, second = torch.cuda.Event(), torch.cuda.Event()
    first.record()
    second.record()

    with pytest.raises(ValueError, match="enable_timing=True"):
        first.elapsed_time(second)


def test_events_that_were_not_recorded_refuse_to_tell_the_time(cuda: Rehearsal) -> None:
    first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    with pytest.raises(ValueError, match="recorded"):
        first.elapsed_time(second)


def test_generic_streams_and_events_are_there(on: Rehearsal) -> None:
    stream, event = torch.Stream(device=on.device), torch.Event(device=on.device)

    event.record(stream)
    stream.synchronize()

    assert str(stream.device) == on.device
    assert event.query()
    assert torch.accelerator.current_stream() is not None


def test_streams_are_per_thread(cuda: Rehearsal) -> None:
    from concurrent.futures import ThreadPoolExecutor

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), ThreadPoolExecutor(1) as pool:
        other = pool.submit(torch.cuda.current_stream).result()

    assert other != stream


def test_streams_do_not_outlive_the_rehearsal() -> None:
    with rehearse("cuda"):
        torch.cuda.set_stream(torch.cuda.Stream())

    with rehearse("cuda"):
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_graph_is_refused_or_runs(cuda: Rehearsal) -> None:
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    graph.replay()

    assert y.tolist() == [2, 2, 2, 2]


def test_profiler_ranges_are_accepted(cuda: Rehearsal) -> None:
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("step"):
        torch.ones(1, device="cuda").sum()


def test_profiler_runs(device: str) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(4, device=device).sum()

    assert any("aten::sum" in event.key for event in profile.key_averages())
