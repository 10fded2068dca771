"""Which tensors are astray. Three questions, by what holds a tensor:

    in a module        its `to` leaves the tensor behind: astray if it is on none of the devices of the module that it hangs
                       in, latent if it is (see `wherry.where.strays` for what is left behind)
    registered         on the host, while others of the very same module are on an accelerator: it came after the move
    in an optimizer    the state is not where its parameter is
    elsewhere          the host and an accelerator are mixed in one batch: those on the host are astray, unless most are there,
                       by number and by bytes; then those on the accelerator are

A model on several devices is on several devices on purpose: each module's own parameters say where it is. Several
accelerators in one batch are on purpose too, unless one has nearly everything. Never astray: 0-dim tensors of a batch that are
on the host, which may meet any device; what belongs on the host (`strays.stays`); arrays; what is on meta, or fake.

In a training state, a dictionary of models, optimizers and more, each of its parts is one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wherry.where.inventory import Astray, Entry

_NOWHERE = frozenset({"numpy", "mlx", "meta", "?"})


@dataclass(frozen=True, slots=True)
class Registered:
    """What one module has registered itself.

    Attributes:
        title: Its class.
        path: How it is written.
        root: How the outermost module is written, whose `to` moves it.
        entries: Its own parameters and buffers.
    """

    title: str
    path: str
    root: str
    entries: Sequence[Entry]


def is_somewhere(entry: Entry) -> bool:
    """Whether an entry is on a device that a program computes on."""
    return entry.device not in _NOWHERE and entry.note != "fake"


def is_placed(entry: Entry) -> bool:
    """Whether an entry says where its module is: also a module on meta is somewhere."""
    return is_somewhere(entry) or entry.device == "meta"


def late(module: Registered) -> Iterable[Astray]:
    """Registered tensors on the host, beside others of the same module on an accelerator."""
    there = dict.fromkeys(e.device for e in module.entries if is_somewhere(e) and e.device != "cpu")
    if not there:
        return
    for entry in module.entries:
        if is_somewhere(entry) and entry.device == "cpu":
            yield Astray(
                entry,
                tuple(there),
                latent=False,
                why=f"is registered in {module.title}, whose other tensors are on {_or(there)}: it came after the move",
                fix=f"Move the module once more after that, {module.root}.to({next(iter(there))!r}), or make it there.",
            )


def mixed(entries: Sequence[Entry], name: str) -> Iterable[Astray]:
    """Those tensors of a batch that are not where the rest is."""
    there = [e for e in entries if is_somewhere(e) and not (e.device == "cpu" and e.shape == ())]
    counts, sizes = dict[str, int](), dict[str, int]()
    for entry in there:
        counts[entry.device] = counts.get(entry.device, 0) + 1
        sizes[entry.device] = sizes.get(entry.device, 0) + entry.nbytes
    if len(counts) < 2:
        return
    accelerators = [device for device in counts if device != "cpu"]
    on_them = sum(counts[device] for device in accelerators)
    most_are_on_host = counts.get("cpu", 0) > on_them and sizes.get("cpu", 0) > sum(sizes[d] for d in accelerators)
    if most_are_on_host:
        homes = ["cpu"]
    else:
        largest = max(accelerators, key=lambda device: sizes[device])
        few = on_them - counts[largest] < on_them / 3
        little = sum(sizes[d] for d in accelerators) - sizes[largest] < sum(sizes[d] for d in accelerators) / 10
        homes = [largest] if few and little else accelerators
    for entry in there:
        if entry.device not in homes:
            yield Astray(
                entry,
                tuple(homes),
                latent=False,
                why=f"is not where the rest of {name} is",
                fix=f"Move all of it at once: {name} = wherry.move({name}, {homes[0]!r}).",
            )


def off_parameter(entry: Entry, device: str, optimizer: str) -> Astray:
    """A state of an optimizer that is not where its parameter is."""
    return Astray(
        entry,
        (device,),
        latent=False,
        why=f"is the state of a parameter that is on {device}",
        fix=f"Move it to its parameters, `wherry.move({optimizer}, {device!r})`, or construct it after the model has moved.",
    )


def _or(devices: Iterable[str]) -> str:
    return " or ".join(devices)
