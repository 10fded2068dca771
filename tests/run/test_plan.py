"""Where a program shall run: what is asked for, what is here, and which of the two decides."""

from __future__ import annotations

import pytest

from wherry.errors import BadCount, BadSize, DeviceAbsent, UnknownDevice, UnknownProfile
from wherry.run.plan import Plan, Want, make
from wherry.units import GIB


def test_a_device_that_is_here_is_not_rehearsed(machine):
    machine(machine.present("cuda", GIB))

    assert not make("cuda").is_virtual()


def test_a_device_that_is_not_here_is_rehearsed(machine):
    machine(machine.present("xpu"))

    assert make("xpu").is_virtual()


def test_more_devices_than_are_here_are_rehearsed(machine):
    machine(machine.present("cuda", GIB))

    assert make("cuda", count=2).is_virtual()
    assert make("cuda:1").is_virtual()
    assert not make("cuda:0").is_virtual()


def test_virtual_overrules_what_is_here(machine):
    machine(machine.present("cuda", GIB))

    assert make("cuda", want=Want.VIRTUAL).is_virtual()


def test_a_memory_means_a_rehearsal(machine):
    machine(machine.present("cuda", GIB))

    assert make("cuda", memory="8GiB") == Plan("cuda", 0, 1, 8 * GIB, Want.VIRTUAL)


def test_an_index_asks_for_enough_devices():
    assert make("cuda:3") == Plan("cuda", 3, 4, None, Want.EITHER)
    assert make("cuda:1", count=8).count == 8


def test_real_is_refused_with_the_reason(machine):
    machine(machine.broken("cuda", "driver too old"))

    with pytest.raises(DeviceAbsent, match='"cuda" is broken: driver too old'):
        make("cuda", want=Want.REAL)


def test_real_is_refused_where_there_are_too_few(machine):
    machine(machine.present("cuda", GIB))

    with pytest.raises(DeviceAbsent, match="2 are asked for and 1 .+ device is here"):
        make("cuda", want=Want.REAL, count=2)


def test_real_is_granted_where_it_is_here(machine):
    machine(machine.present("cuda", GIB, GIB))

    assert make("cuda", want=Want.REAL, count=2).want is Want.REAL


def test_the_environment_is_asked_before_pick():
    assert make(environ={"WHERRY_DEVICE": "xpu"}).backend == "xpu"
    assert make("mps", environ={"WHERRY_DEVICE": "xpu"}).backend == "mps"


@pytest.mark.parametrize("environ", [{}, {"WHERRY_DEVICE": "auto"}, {"WHERRY_DEVICE": ""}])
def test_without_a_word_pick_chooses(machine, environ):
    absent = [machine.present(name) for name in ("cuda", "mps", "xpu")]
    machine(*absent, machine.present("rocm", GIB, 2 * GIB))

    assert make(environ=environ) == Plan("rocm", 1, 2, None, Want.EITHER)


@pytest.mark.parametrize(
    ("on", "error", "sentence"),
    [
        ("cudda", UnknownDevice, 'Did you mean "cuda"'),
        ("cudda:1", UnknownDevice, '"cudda:1" is no device'),
        ("cuda:one", UnknownDevice, '"cuda:one" is no device'),
        ("cuda:-1", UnknownDevice, '"cuda:-1" is no device'),
        ("mps:1", BadCount, "torch knows one mps device"),
        ("cpu:1", BadCount, "torch knows one cpu device"),
    ],
)
def test_a_device_that_makes_no_sense(on, error, sentence):
    with pytest.raises(error, match=sentence):
        make(on)


@pytest.mark.parametrize("count", [0, -1, 10_000])
def test_a_count_that_makes_no_sense(count):
    with pytest.raises(BadCount, match="no number of cuda devices"):
        make("cuda", count=count)


def test_a_profile_means_a_rehearsal_and_reaches_the_children():
    plan = make("cuda", profile="rtx4090")
    environ: dict[str, str] = {}

    plan.write_to(environ)

    assert plan == Plan("cuda", 0, 1, None, Want.VIRTUAL, "rtx4090")
    assert Plan.read_from(environ) == plan


def test_a_profile_of_another_backend():
    with pytest.raises(UnknownProfile, match='"m1" is no profile of cuda'):
        make("cuda", profile="m1")


def test_a_memory_that_makes_no_sense():
    with pytest.raises(BadSize, match='"lots" is no size'):
        make("cuda", memory="lots")
