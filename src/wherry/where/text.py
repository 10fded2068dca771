"""An inventory in a terminal: what it is, what is astray, where the bytes are, the tree, what is shared."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wherry.units import format_bytes
from wherry.where.inventory import Astray, Inventory, Shared
from wherry.where.printable import printable
from wherry.where.rows import Row, rows

_STRAYS = 8  # groups of strays that are shown
_GROUPS = 6  # groups of tied tensors, and of aliases


def plain(inventory: Inventory, *, depth: int | None = None, every: bool = False, width: int = 100) -> str:
    """The text without colour, ending in no newline."""
    file = io.StringIO()
    console = Console(
        file=file, width=width, no_color=True, highlight=False, force_terminal=False, legacy_windows=False
    )
    console.print(draw(inventory, depth=depth, every=every, width=width))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).rstrip("\n")


_MORE = "Not everything is shown: depth=N goes deeper, all=True shows every tensor."


def draw(
    inventory: Inventory, *, depth: int | None = None, every: bool = False, width: int = 100, more: str = _MORE
) -> RenderableType:
    """The inventory for rich; `more` is said where not everything is shown."""
    parts: list[RenderableType] = [_title(inventory)]
    real = [stray for stray in inventory.strays if not stray.latent]
    latent = [stray for stray in inventory.strays if stray.latent]
    parts += _strays(real, "astray: not where the rest is", "bold red", width, every=every)
    parts += _strays(latent, "would be left behind by the next .to()", "yellow", width, every=every)
    if len(inventory.devices) > 1:
        parts += ["", _totals(inventory)]
    shown, left = rows(inventory, depth=depth, every=every)
    if inventory.entries:
        parts += ["", _table(shown, width)]
    hidden = left > 0 or any(row.closed for row in shown)
    if left:
        parts.append(Text(f"  ... and {left:,} more rows", style="dim"))
    if hidden:
        parts.append(Text(f"  {more}", style="dim"))
    parts += _shared(inventory.tied, "tied: the same by several paths", every=every)
    parts += _shared(inventory.aliases, "aliases: several tensors over one storage", every=every)
    parts += [Text(printable(note), style="dim") for note in inventory.notes]
    return Group(*parts)


def _title(inventory: Inventory) -> Text:
    count = inventory.tensors
    text = Text.assemble((printable(inventory.name), "bold"), (f"  {printable(inventory.title)}", "dim"))
    text.append(f"  {count:,} tensor{'s' if count != 1 else ''}")
    if count:
        text.append(f", {format_bytes(inventory.nbytes)}")
    if inventory.would_be:
        text.append(f" (and {format_bytes(inventory.would_be)} that are not allocated)")
    if len(inventory.devices) == 1:
        text.append(" on ").append(printable(inventory.devices[0].name), style="bold cyan")
    dtypes = [f"{printable(total.name)} {format_bytes(total.nbytes or total.would_be)}" for total in inventory.dtypes]
    if len(dtypes) == 1:
        text.append(f", {printable(inventory.dtypes[0].name)}")
    elif dtypes:
        text.append(": " + ", ".join(dtypes[:4]) + (" ..." if len(dtypes) > 4 else ""))
    return text


def grouped(strays: Sequence[Astray]) -> list[list[Astray]]:
    """Strays that one change mends, together."""
    groups: dict[tuple[str, str, str], list[Astray]] = {}
    for stray in strays:
        groups.setdefault((stray.why, stray.fix, stray.entry.device), []).append(stray)
    return list(groups.values())


def _strays(strays: Sequence[Astray], heading: str, style: str, width: int, *, every: bool) -> Iterator[RenderableType]:
    groups = grouped(strays)
    if not groups:
        return
    yield ""
    yield Text(heading, style=style)
    shown = groups if every else groups[:_STRAYS]
    for group in shown:
        stray = group[0]
        names = Text("  ").append(printable(stray.entry.shown), style=style)
        if len(group) > 1:
            names.append(f" and {len(group) - 1} more", style=style)
        names.append(f"  on {printable(stray.entry.device)}")
        if not stray.latent and stray.expected:
            names.append(f", not {printable(' or '.join(stray.expected))}")
        if stray.entry.shape == () and stray.entry.device == "cpu" and not stray.latent:
            names.append("  (0-dim: arithmetic takes it from the host, cat and compiled code do not)", style="dim")
        yield names
        yield from _paragraph("why", f"it {stray.why}", width)
        yield from _paragraph("fix", stray.fix, width)
    if len(shown) < len(groups):
        more = sum(map(len, groups[len(shown) :]))
        yield Text(f"  ... and {more} more", style="dim")


def _paragraph(label: str, sentence: str, width: int) -> Iterator[Text]:
    wrapped = textwrap.wrap(
        printable(sentence), max(30, min(width, 110) - 9), break_long_words=False, break_on_hyphens=False
    )
    for number, part in enumerate(wrapped):
        yield Text().append(f"    {label if not number else '':<5}", style="dim").append(part)


def _totals(inventory: Inventory) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    for total in inventory.devices:
        would_be = f"would take {format_bytes(total.would_be)}" if total.would_be else ""
        count = f"{total.tensors:,} tensor{'s' if total.tensors != 1 else ''}"
        table.add_row(
            Text(printable(total.name), "bold cyan"), format_bytes(total.nbytes), count, Text(would_be, "dim")
        )
    return table


def size_of(row: Row) -> str:
    """The bytes of a row; in brackets what it would take where it holds nothing."""
    if row.nbytes or not row.would_be:
        return format_bytes(row.nbytes)
    return f"({format_bytes(row.would_be)})"


def name_of(row: Row) -> str:
    """The text of a row, without its indentation."""
    times = f"  x {row.times:,}" if row.times > 1 else ""
    return f"{printable(row.text)}{times}"


def _table(shown: Sequence[Row], width: int) -> RenderableType:
    """The tree. What gives way where there is little room is the last column, then the names."""
    cells = [(row.shape, printable(row.dtype), printable(row.device), size_of(row)) for row in shown]
    heads = ("shape", "dtype", "device", "bytes")
    fixed = 2 + sum(max(len(head), *(len(one[at]) for one in cells)) + 2 for at, head in enumerate(heads))
    longest = max(2 * min(row.level, 12) + len(name_of(row)) + 4 for row in shown)
    extra = max(len(extra_of(row)) for row in shown) + 2
    with_extra = width - fixed - extra >= min(longest, 40)
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    room = width - fixed - (extra if with_extra else 0)
    table.add_column("", overflow="ellipsis", no_wrap=True, max_width=max(16, room))
    for head in heads:
        table.add_column(head, no_wrap=True, justify="right" if head in ("shape", "bytes") else "left")
    if with_extra:
        table.add_column("", no_wrap=True)
    for row, (shape, dtype, device, size) in zip(shown, cells, strict=True):
        name = Text("  " * min(row.level, 12)).append(name_of(row), style="" if row.entry is not None else "bold")
        if row.closed:
            name.append(" ...", style="dim")
        quiet = "dim" if row.entry is None else ""
        line = [name, Text(shape, quiet), Text(dtype, quiet), Text(device, "cyan"), Text(size, quiet)]
        table.add_row(*line, *([Text(extra_of(row), "dim")] if with_extra else []))
    return Padding(table, (0, 0, 0, 2), expand=False)


def extra_of(row: Row) -> str:
    """What its class or role is, and what is odd about it."""
    return printable(", ".join(word for word in (row.title, row.note) if word))


def _shared(groups: Sequence[Shared], heading: str, *, every: bool) -> Iterator[RenderableType]:
    if not groups:
        return
    yield ""
    yield Text(heading, style="bold")
    shown = groups if every else groups[:_GROUPS]
    for group in shown:
        paths = group.paths if every else group.paths[:3]
        text = printable(" = ".join(paths))
        if group.count > len(paths):
            text += f" and {group.count - len(paths)} more"
        size = f"  {format_bytes(group.nbytes)}" if group.nbytes else ""
        yield Text("  ").append(text).append(size, style="dim")
    if len(shown) < len(groups):
        yield Text(f"  ... and {len(groups) - len(shown)} more", style="dim")
