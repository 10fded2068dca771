"""`wherry devices`: what is here, what each backend can do, what can be rehearsed, and what `pick()` would choose.

The facts are gathered once, as plain values (`gather`); `--json` prints them, otherwise they are drawn. Both say so when
torch is missing, and name a broken driver with its reason.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import wherry
from wherry import backends
from wherry.backends import Backend, Capabilities, Memory, Presence
from wherry.backends._backend import first_line
from wherry.cli._console import Command, out
from wherry.errors import WherryError
from wherry.pick import Choice, pick
from wherry.roster import Broken
from wherry.units import format_bytes


@dataclass(frozen=True, slots=True)
class Device:
    """One device that is here."""

    device: str  # what torch calls it: "cuda:1"
    name: str
    memory: Memory | None
    trouble: str | None = None  # what asking for its memory raised


@dataclass(frozen=True, slots=True)
class Row:
    """One backend and its devices."""

    backend: Backend
    presence: Presence
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything `wherry devices` knows."""

    torch: str | None
    rows: tuple[Row, ...]
    choice: Choice | None
    no_choice: str | None  # why `choice` is None
    broken: tuple[Broken, ...]  # third-party backends that could not be loaded


def gather() -> Survey:
    """Ask every backend."""
    from wherry.cli import torch_version

    rows = tuple(_row(backend) for backend in backends.all())
    choice, no_choice = None, None
    try:
        choice = pick()
    except WherryError as err:
        no_choice = str(err)
    return Survey(torch_version(), rows, choice, no_choice, backends.broken())


def _row(backend: Backend) -> Row:
    presence = backend.probe()
    return Row(backend, presence, tuple(_device(backend, presence, index) for index in range(presence.count)))


def _device(backend: Backend, presence: Presence, index: int) -> Device:
    device = f"{backend.device_type}:{index}" if backend.priority > 0 else backend.device_type
    name = presence.names[index] if index < len(presence.names) else backend.title
    try:
        return Device(device, name, backend.memory(index))
    except Exception as err:  # noqa: BLE001 - drivers raise anything; it is shown beside the device
        return Device(device, name, None, first_line(err))


def to_json(survey: Survey) -> dict[str, object]:
    """The survey as plain values. Part of the contract: see docs/index.md."""
    return {
        "wherry": wherry.__version__,
        "torch": survey.torch,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "pick": survey.choice.to_json() if survey.choice is not None else None,
        "pick_error": survey.no_choice,
        "backends": [_backend_json(row) for row in survey.rows],
        "broken_entry_points": [asdict(broken) for broken in survey.broken],
    }


def _capabilities(backend: Backend) -> Capabilities:
    """What a backend can do with the installed torch, or with the newest where there is none that imports."""
    try:
        return replace(backend.capabilities, compile=backend.compiles())
    except (ImportError, OSError):
        return backend.capabilities


def _backend_json(row: Row) -> dict[str, object]:
    backend, virtual = row.backend, row.backend.virtual
    able = _capabilities(backend)
    capabilities = {**asdict(able), "compile": able.compile.value}
    return {
        "name": backend.name,
        "title": backend.title,
        "device_type": backend.device_type,
        "aliases": list(backend.aliases),
        "state": row.presence.state.value,
        "reason": row.presence.reason,
        "devices": [asdict(device) for device in row.devices],
        "capabilities": {**capabilities, "dtypes": sorted(backend.capabilities.dtypes)},
        "rehearsal": virtual and {
            "name": virtual.name, "memory": virtual.total_memory, "max_count": virtual.max_count
        },
        "quirks": [asdict(quirk) for quirk in backend.quirks],
    }  # fmt: skip


def draw(survey: Survey) -> RenderableType:
    """The survey for people: three tables and a sentence."""
    torch = f"torch {survey.torch}" if survey.torch else "torch is not installed"
    facts = (torch, f"Python {platform.python_version()}", f"{platform.system()} {platform.machine()}")
    parts: list[RenderableType] = [
        Text.assemble((f"wherry {wherry.__version__}", "heading"), ("  " + "  ".join(facts), "quiet")),
        _section("Here", _here(survey)),
        "",
        Padding(_sentence(survey), (0, 0, 0, 2), expand=False),
        _section("What a device of each backend can do", _abilities(survey)),
        _section(
            "What can be rehearsed " + ("here" if survey.torch else "once torch is installed"), _rehearsals(survey)
        ),
    ]
    if survey.broken:
        parts.append(_section("Entry points that could not be loaded", _entry_points(survey)))
    return Group(*parts)


def _section(title: str, body: RenderableType) -> RenderableType:
    return Group("", Text(title, style="heading"), Padding(body, (0, 0, 0, 2), expand=False))


def _grid(*, header: bool = False) -> Table:
    return Table(box=None, show_header=header, header_style="device", padding=(0, 3, 0, 0), pad_edge=False)


def _here(survey: Survey) -> Table:
    table = _grid()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in survey.rows:
        if not row.devices:
            style = row.presence.state.value
            table.add_row(Text(row.backend.name, style), Text(style, style), Text(row.presence.reason, style))
        for device in row.devices:
            picked = survey.choice is not None and (survey.choice.backend, survey.choice) == (
                row.backend.name,
                device.device,
            )
            table.add_row(
                Text(device.device, "device"), Text("picked" if picked else "present", "present"), _describe(device)
            )
    return table


def _describe(device: Device) -> Text:
    if device.trouble:
        return Text.assemble(device.name, ", ", (device.trouble, "broken"))
    if device.memory is None:
        return Text(device.name)
    return Text(f"{device.name}, {format_bytes(device.memory.free)} of {format_bytes(device.memory.total)} free")


def _sentence(survey: Survey) -> Text:
    if survey.choice is None:
        return Text(survey.no_choice or "", "broken")
    return Text.assemble(
        ("wherry.pick()", "command"),
        " would choose ",
        (str(survey.choice), "device"),
        f", because {survey.choice.because}.",
    )


def _abilities(survey: Survey) -> Table:
    table = _grid(header=True)
    table.add_column("", no_wrap=True)
    for row in survey.rows:
        table.add_column(row.backend.name, no_wrap=True)
    columns = [list(_ability(_capabilities(row.backend))) for row in survey.rows]
    for cells in zip(*columns, strict=True):
        table.add_row(Text(cells[0][0], "quiet"), *(_cell(value) for _, value in cells))
    return table


def _ability(can: Capabilities) -> Iterator[tuple[str, bool | str]]:
    """The rows of the table, of which every backend fills a column."""
    for dtype in ("float64", "bfloat16", "float8_e4m3fn", "complex128"):
        yield dtype, dtype in can.dtypes
    yield "streams", can.streams
    yield "timed events", can.timed_events
    yield "graphs", can.graphs
    yield "pinned memory", can.pinned_memory
    yield "non_blocking copies", can.non_blocking
    yield "autocast default", can.autocast_default
    yield "GradScaler", can.grad_scaler
    yield "foreach by default", can.foreach_default
    yield "fused optimizers", str(len(can.fused_optimizers))
    yield "torch.compile", can.compile.value
    yield "torch.distributed", can.distributed


def _cell(value: bool | str) -> Text:
    if isinstance(value, str):
        return Text(value)
    return Text("yes", "good") if value else Text("no", "quiet")


def _rehearsals(survey: Survey) -> Table:
    table = _grid()
    for _ in range(4):
        table.add_column(no_wrap=True)
    for row in survey.rows:
        virtual = row.backend.virtual
        if virtual is None:
            continue
        many = f"up to {virtual.max_count}" if virtual.max_count > 1 else "1"
        table.add_row(
            Text(f"--on {row.backend.name}", "command"),
            Text(virtual.name),
            Text(format_bytes(virtual.total_memory)),
            Text(many, "quiet"),
        )
    return table


def _entry_points(survey: Survey) -> Table:
    table = _grid()
    for broken in survey.broken:
        table.add_row(Text(broken.name, "broken"), Text(broken.source, "quiet"), Text(broken.reason))
    return table


def devices(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, quirks included.")] = False
) -> None:
    """Show what this machine has, what each backend can do, and what [cyan]wherry.pick()[/] would choose."""
    survey = gather()
    if as_json:
        print(json.dumps(to_json(survey), indent=2, ensure_ascii=False))  # noqa: T201 - the answer itself
    else:
        out().print(draw(survey))


COMMAND = Command(devices, position=10)
