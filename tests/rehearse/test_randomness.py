"""Random numbers: each device has a stream of its own, reproducible, and none of them is the host's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from wherry.rehearse import Rehearsal, rehearse

DRAWS: dict[str, Callable[[str], Tensor]] = {
    "rand": lambda d: torch.rand(8, device=d),
    "randn": lambda d: torch.randn(8, device=d),
    "randint": lambda d: torch.randint(100, (8,), device=d),
    "randperm": lambda d: torch.randperm(8, device=d),
    "normal": lambda d: torch.normal(torch.zeros(8, device=d), torch.ones(8, device=d)),
    "rand_like": lambda d: torch.rand_like(torch.zeros(8, device=d)),
    "randn_like": lambda d: torch.randn_like(torch.zeros(8, device=d)),
    "bernoulli": lambda d: torch.bernoulli(torch.full((64,), 0.5, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.ones(64, device=d), 8),
    "poisson": lambda d: torch.poisson(torch.full((8,), 50.0, device=d)),
    "uniform_": lambda d: torch.zeros(8, device=d).uniform_(),
    "normal_": lambda d: torch.zeros(8, device=d).normal_(),
    "exponential_": lambda d: torch.zeros(8, device=d).exponential_(),
    "random_": lambda d: torch.zeros(8, device=d).random_(100),
    "dropout": lambda d: F.dropout(torch.ones(64, device=d)),
    "gumbel_softmax": lambda d: F.gumbel_softmax(torch.zeros(8, device=d)),
    "rrelu": lambda d: F.rrelu(-torch.ones(8, device=d), training=True),
    "init": lambda d: nn.init.xavier_uniform_(torch.zeros(4, 4, device=d)),
    "distribution": lambda d: torch.distributions.Normal(torch.zeros(8, device=d), 1.0).sample(),
    "binomial": lambda d: torch.binomial(torch.full((64,), 9.0, device=d), torch.full((64,), 0.5, device=d)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_same_seed_gives_the_same_numbers_on_the_device(name: str, device: str) -> None:
    torch.manual_seed(5)
    first = DRAWS[name](device)
    torch.manual_seed(5)

    assert torch.equal(DRAWS[name](device), first)
    assert str(first.device) == device


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_go_on_from_one_draw_to_the_next(name: str, device: str) -> None:
    assert not torch.equal(DRAWS[name](device), DRAWS[name](device))


@pytest.mark.parametrize("name", DRAWS)
def test_drawing_on_the_device_leaves_the_hosts_stream_alone(name: str, device: str) -> None:
    torch.manual_seed(5)
    untouched = torch.rand(4)
    torch.manual_seed(5)

    DRAWS[name](device)

    assert torch.equal(torch.rand(4), untouched)


@pytest.mark.parametrize("name", DRAWS)
def test_drawing_on_the_host_leaves_the_devices_stream_alone(name: str, device: str) -> None:
    torch.manual_seed(5)
    untouched = DRAWS[name](device)
    torch.manual_seed(5)

    torch.rand(100)

    assert torch.equal(DRAWS[name](device), untouched)


def test_manual_seed_before_the_first_draw_counts(device: str) -> None:
    torch.manual_seed(5)
    first = torch.rand(4, device=device)
    torch.manual_seed(6)
    second = torch.rand(4, device=device)
    torch.manual_seed(5)

    assert torch.equal(torch.rand(4, device=device), first)
    assert not torch.equal(first, second)


def test_each_device_has_its_own_stream(pair: tuple[str, str]) -> None:
    torch.manual_seed(5)
    first = torch.rand(4, device=pair[0])
    torch.rand(4, device=pair[0])
    second = torch.rand(4, device=pair[1])

    assert torch.equal(first.cpu(), second.cpu())  # the same seed, each from its beginning


def test_a_rehearsal_starts_from_a_fresh_device() -> None:
    def draw() -> Tensor:
        with rehearse("cuda"):
            torch.cuda.manual_seed(3)
            return torch.rand(4, device="cuda").cpu()

    assert torch.equal(draw(), draw())


def test_rehearsal_leaves_the_hosts_stream_as_it_was() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(4)
    torch.manual_seed(5)

    with rehearse("cuda"):
        torch.rand(4, device="cuda")
        F.dropout(torch.ones(4, device="cuda"))

    assert torch.equal(torch.rand(4), wanted)


# Seeds and states of a namespace


@pytest.mark.parametrize("name", ["cuda", "rocm", "xpu", "mps"])
def test_namespace_seeds_its_device_only(name: str) -> None:
    with rehearse(name) as rehearsal:
        namespace = torch.get_device_module(rehearsal.device)
        torch.manual_seed(1)
        host = torch.rand(4)
        torch.manual_seed(1)
        namespace.manual_seed(9)
        first = torch.rand(4, device=rehearsal.device)
        namespace.manual_seed(9)

        assert torch.equal(torch.rand(4, device=rehearsal.device), first)
        assert torch.equal(torch.rand(4), host)


@pytest.mark.parametrize("name", ["cuda", "rocm", "xpu", "mps"])
def test_state_of_a_device_is_taken_and_given_back(name: str) -> None:
    with rehearse(name) as rehearsal:
        namespace = torch.get_device_module(rehearsal.device)
        state = namespace.get_rng_state()
        first = torch.rand(4, device=rehearsal.device)
        namespace.set_rng_state(state)

        assert state.device.type == "cpu"
        assert state.dtype is torch.uint8
        assert torch.equal(torch.rand(4, device=rehearsal.device), first)


def test_all_devices_are_seeded_and_restored(cuda: Rehearsal) -> None:
    torch.cuda.manual_seed_all(4)
    assert torch.cuda.initial_seed() == 4
    states = torch.cuda.get_rng_state_all()
    drawn = [torch.rand(2, device=d) for d in ("cuda:0", "cuda:1")]
    torch.cuda.set_rng_state_all(states)

    assert all(torch.equal(torch.rand(2, device=d), x) for d, x in zip(("cuda:0", "cuda:1"), drawn, strict=True))


def test_forked_stream_is_put_back(cuda: Rehearsal) -> None:
    torch.manual_seed(5)
    with torch.random.fork_rng(devices=[0]):
        inside = torch.rand(4, device="cuda")
    after = torch.rand(4, device="cuda")

    assert torch.equal(inside, after)


def test_seeding_at_random_gives_other_numbers(cuda: Rehearsal) -> None:
    torch.cuda.manual_seed(1)
    first = torch.rand(4, device="cuda")
    torch.cuda.seed()

    assert not torch.equal(torch.rand(4, device="cuda"), first)


# Generators


def test_generator_belongs_to_its_device(device: str) -> None:
    generator = torch.Generator(device)

    assert generator.device == torch.device(device)
    assert isinstance(generator, torch.Generator)
    assert torch.Generator().device == torch.device("cpu")
    assert generator.manual_seed(3) is generator
    assert generator.initial_seed() == 3


@pytest.mark.parametrize(
    "asked", [torch.device, str, lambda d: d.partition(":")[0]], ids=["torch.device", "text", "type"]
)
def test_generator_is_made_for_a_device_in_any_notation(asked: Callable[[str], object], device: str) -> None:
    assert torch.Generator(device=asked(device)).device == torch.device(device)  # type: ignore[arg-type]


GIVEN: dict[str, Callable[[str, torch.Generator], Tensor]] = {
    "rand": lambda d, g: torch.rand(8, device=d, generator=g),
    "randn": lambda d, g: torch.randn(8, device=d, generator=g),
    "randint": lambda d, g: torch.randint(100, (8,), device=d, generator=g),
    "randperm": lambda d, g: torch.randperm(8, device=d, generator=g),
    "normal": lambda d, g: torch.normal(0.0, 1.0, (8,), device=d, generator=g),
    "normal_": lambda d, g: torch.zeros(8, device=d).normal_(generator=g),
    "uniform_": lambda d, g: torch.zeros(8, device=d).uniform_(generator=g),
    "bernoulli": lambda d, g: torch.bernoulli(torch.full((64,), 0.5, device=d), generator=g),
    "multinomial": lambda d, g: torch.multinomial(torch.ones(64, device=d), 8, generator=g),
    "init": lambda d, g: nn.init.normal_(torch.zeros(8, device=d), generator=g),
    "poisson": lambda d, g: torch.poisson(torch.full((8,), 50.0, device=d), generator=g),
}


@pytest.mark.parametrize("name", GIVEN)
def test_generator_decides_the_numbers(name: str, device: str) -> None:
    def drawn(seed: int) -> Tensor:
        return GIVEN[name](device, torch.Generator(device).manual_seed(seed))

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.parametrize("name", GIVEN)
def test_generator_of_the_other_side_is_refused(name: str, device: str) -> None:
    kind = torch.device(device).type

    with pytest.raises(RuntimeError, match=f"Expected a '{kind}' device type for generator but found 'cpu'"):
        GIVEN[name](device, torch.Generator())
    with pytest.raises(RuntimeError, match=f"Expected a 'cpu' device type for generator but found '{kind}'"):
        GIVEN[name]("cpu", torch.Generator(device))
    GIVEN[name]("cpu", torch.Generator())


def test_generator_of_the_other_device_will_do(pair: tuple[str, str]) -> None:
    torch.rand(4, device=pair[0], generator=torch.Generator(pair[1]))  # the type must match, the index need not


def test_generator_goes_on(device: str) -> None:
    generator = torch.Generator(device).manual_seed(1)
    first, second = (torch.rand(4, device=device, generator=generator) for _ in range(2))

    assert not torch.equal(first, second)


def test_state_of_a_generator_is_taken_and_given_back(device: str) -> None:
    generator = torch.Generator(device).manual_seed(1)
    state = generator.get_state()
    first = torch.rand(4, device=device, generator=generator)
    generator.set_state(state)

    assert torch.equal(torch.rand(4, device=device, generator=generator), first)
    other = torch.Generator(device)
    other.set_state(state)
    assert torch.equal(torch.rand(4, device=device, generator=other), first)


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g)), lambda g: g.clone_state()])
def test_copy_of_a_generator_goes_its_own_way(twin: Callable[[torch.Generator], torch.Generator], device: str) -> None:
    generator = torch.Generator(device).manual_seed(1)
    other = twin(generator)

    assert other.device == generator.device
    assert torch.equal(torch.rand(4, device=device, generator=other), torch.rand(4, device=device, generator=generator))


@given(seed=st.integers(0, 2**32 - 1))
def test_any_seed_gives_the_cpu_algorithms_numbers(seed: int) -> None:
    plain = torch.rand(4, generator=torch.Generator().manual_seed(seed))

    with rehearse("cuda"):
        assert torch.equal(
            torch.rand(4, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)).cpu(), plain
        )


@given(seed=st.integers(-(2**63), 2**64 - 1))
def test_any_seed_that_torch_takes_is_remembered(seed: int) -> None:
    with rehearse("cuda"):
        given_ = torch.Generator("cuda").manual_seed(seed).initial_seed()

    assert given_ == torch.Generator().manual_seed(seed).initial_seed()


def test_default_generators_of_cuda_are_there(cuda: Rehearsal) -> None:
    assert len(torch.cuda.default_generators) == 2
    assert torch.cuda.default_generators[1].device == torch.device("cuda:1")


def test_sampler_takes_a_generator_of_the_host(device: str) -> None:
    sampler = torch.utils.data.RandomSampler(range(4), generator=torch.Generator().manual_seed(0))

    assert sorted(sampler) == [0, 1, 2, 3]
