"""Random numbers of a virtual device: a stream of its own for each device, none of them the host's.

A device's generator is a CPU `torch.Generator` seeded as the real default generator of that device would be
(`torch.manual_seed` seeds them all). Ops that draw at a device draw from it, so the host's stream is untouched, as on
real hardware. The numbers are those of PyTorch's CPU algorithm, not those of the chip.

A generator that the program makes for a device (`torch.Generator("cuda")`) must be recognised when it comes back as an
argument of an op, but the dispatcher wraps it anew each time. What survives is its seed, of which the CPU algorithm
(mt19937) uses the low 32 bits only: the high ones say which device it stands for
(tests/torch_contract/test_generators.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from wherry.dispatch import Signature
from wherry.storage import Place, place_of

_RealGenerator = torch.Generator
_MAGIC = 0x57E7
_SEED_BYTES = slice(0, 8)  # of a state tensor: CPUGeneratorImpl's legacy layout begins with the 64-bit initial seed

_types: list[str] = []  # device types by number, since a seed can carry numbers only
_defaults: dict[str, VirtualGenerator] = {}  # Place.name -> the device's own generator


class VirtualGenerator(_RealGenerator):
    """A `torch.Generator` that says it belongs to a virtual device."""

    _place: Place
    _seed: int

    def __new__(cls, place: Place) -> VirtualGenerator:
        self = super().__new__(cls, "cpu")
        self._place = place
        self.manual_seed(67280421310721)  # c10::detail::default_rng_seed_val, what every real generator starts with
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._place.device

    def manual_seed(self, seed: int) -> VirtualGenerator:
        seed = int(seed) & 0xFFFFFFFFFFFFFFFF  # as torch counts negative ones
        super().manual_seed(_marked(seed, self._place))
        self._seed = seed
        return self

    def initial_seed(self) -> int:
        return self._seed

    def seed(self) -> int:
        seed = super().seed()
        self.manual_seed(seed)
        return seed

    def set_state(self, new_state: torch.Tensor) -> VirtualGenerator:
        """Take over a state, and stay a generator of this device whichever generator the state comes from."""
        if new_state.device.type != "cpu":
            raise TypeError("RNG state must be a torch.ByteTensor")
        state = torch.frombuffer(bytearray(new_state.numpy()), dtype=torch.uint8)
        raw = state.numpy()
        self._seed = int.from_bytes(raw[_SEED_BYTES].tobytes(), "little")
        raw[_SEED_BYTES] = bytearray(_marked(self._seed, self._place).to_bytes(8, "little"))
        super().set_state(state)
        return self

    def clone_state(self) -> VirtualGenerator:
        twin = VirtualGenerator(self._place)
        twin.set_state(self.get_state())
        return twin

    def __reduce__(self) -> Any:
        return (_rebuild, (self._place, self.get_state()))

    def __deepcopy__(self, memo: dict[int, Any]) -> VirtualGenerator:
        return self.clone_state()


def _rebuild(place: Place, state: torch.Tensor) -> VirtualGenerator:
    return VirtualGenerator(place).set_state(state)


def _marked(seed: int, place: Place) -> int:
    if place.type not in _types:
        _types.append(place.type)
    owner = _types.index(place.type) << 8 | (place.index or 0)
    return (seed & 0xFFFFFFFF) | owner << 32 | _MAGIC << 48


def device_of(generator: torch.Generator) -> torch.device:
    """The device a generator belongs to, also when the dispatcher has wrapped it anew."""
    if isinstance(generator, VirtualGenerator):
        return generator.device
    seed = _RealGenerator.initial_seed(generator)
    if seed >> 48 == _MAGIC:
        owner = seed >> 32 & 0xFFFF
        return torch.device(_types[owner >> 8], owner & 0xFF)
    return torch.device("cpu")


def default_generator(place: Place) -> VirtualGenerator:
    """The generator an op at `place` draws from when it is given none."""
    generator = _defaults.get(place.name)
    if generator is None:
        generator = _defaults[place.name] = VirtualGenerator(place)
        # The program may have called torch.manual_seed before: that seeds every device, also those used later.
        generator.manual_seed(torch.default_generator.initial_seed())
    return generator


def forget_default_generators() -> None:
    """The next rehearsal starts with devices nobody seeded."""
    _defaults.clear()


def seed_all(device_type: str, count: int, seed: int) -> None:
    """What `torch.cuda.manual_seed_all` does."""
    for index in range(count):
        default_generator(place_of(torch.device(device_type, index))).manual_seed(seed)


def drawing_at(
    place: Place, sig: Signature, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run an op that draws random numbers, from the stream of the device it runs at.

    Raises:
        RuntimeError: the generator given belongs to another type of device, in the words of the real one
            (aten/src/ATen/core/Generator.h, `check_generator`).
    """
    given = kwargs.get("generator")
    if given is None and sig.generator:
        given = next((a for a in args if isinstance(a, _RealGenerator)), None)
    if given is not None:
        found = device_of(given).type
        if found != place.type:
            raise RuntimeError(f"Expected a '{place.type}' device type for generator but found '{found}'")
        return run(*args, **kwargs)
    if place.index is None:
        return run(*args, **kwargs)
    source = default_generator(place)
    if sig.generator:
        position = sig.arguments.index("generator")
        if position < len(args):  # given as None by position
            return run(*args[:position], source, *args[position + 1 :], **kwargs)
        return run(*args, **{**kwargs, "generator": source})
    # An overload without a generator argument (rand, native_dropout) knows the host's stream only: lend it ours.
    lent = torch.default_generator
    kept = lent.get_state()
    lent.set_state(source.get_state())
    try:
        return run(*args, **kwargs)
    finally:
        source.set_state(lent.get_state())
        lent.set_state(kept)
