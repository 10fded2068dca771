"""An inventory in a notebook: one self-contained piece of HTML, in the colours of a light or a dark page.

Everything that comes from the program is escaped: keys of dictionaries may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape as escape_tags

from wherry.units import format_bytes
from wherry.where.inventory import Astray, Inventory, Shared
from wherry.where.printable import printable
from wherry.where.rows import Row, rows
from wherry.where.text import extra_of, grouped, name_of, size_of

_MOST = 20  # groups of strays, of tied tensors, and of aliases

# A page says that it is dark in the way of its program: the system's setting, JupyterLab, VS Code, Colab.
_DARK = "--quiet:#9aa4af;--line:#3d444d;--bad:#ff7b72;--soon:#e3b341;--place:#79c0ff"
_STYLE = f"""<style>
.wherry-where{{--quiet:#59636e;--line:#d1d9e0;--bad:#b3212c;--soon:#8a5a00;--place:#0a5ebd;
font:13px/1.5 ui-sans-serif,system-ui,sans-serif;color:inherit;max-width:70em}}
@media (prefers-color-scheme:dark){{.wherry-where{{{_DARK}}}}}
[data-jp-theme-light="true"] .wherry-where,.vscode-light .wherry-where{{--quiet:#59636e;--line:#d1d9e0;--bad:#b3212c;
--soon:#8a5a00;--place:#0a5ebd}}
[data-jp-theme-light="false"] .wherry-where,.vscode-dark .wherry-where,html[theme=dark] .wherry-where{{{_DARK}}}
.wherry-where h4{{margin:.9em 0 .2em;font-size:1em;font-weight:600}}
.wherry-where .quiet{{color:var(--quiet);font-weight:400}} .wherry-where .bad{{color:var(--bad)}}
.wherry-where .soon{{color:var(--soon)}} .wherry-where .place{{color:var(--place)}}
.wherry-where code{{font:12px ui-monospace,Menlo,Consolas,monospace;background:none;padding:0;color:inherit;white-space:pre-wrap}}
.wherry-where table{{border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums;border:0}}
.wherry-where th,.wherry-where td{{text-align:left;padding:.1em 1.2em .1em 0;border:0;border-bottom:1px solid var(--line);
background:none;white-space:nowrap;color:inherit}}
.wherry-where td:first-child{{white-space:normal;overflow-wrap:anywhere}}
.wherry-where th{{color:var(--quiet);font-weight:400}} .wherry-where .n{{text-align:right}}
.wherry-where dl{{margin:0 0 .5em 1em}} .wherry-where dd{{margin:0 0 0 1.2em}}
</style>"""


def escape(text: str) -> str:
    """Text without tags, and without characters that hide or reorder others."""
    return escape_tags(printable(text))


def render(inventory: Inventory, *, depth: int | None = None, every: bool = False) -> str:
    """The inventory as HTML, with the options of `Inventory.text`."""
    return f'{_STYLE}<div class="wherry-where">{"".join(_parts(inventory, depth, every=every))}</div>'


def _parts(inventory: Inventory, depth: int | None, *, every: bool) -> Iterator[str]:
    yield f"<div><b>{escape(inventory.name)}</b> <span class=quiet>{escape(inventory.title)}</span> {_count(inventory.tensors)}"
    yield f", {format_bytes(inventory.nbytes)}"
    yield f", and {format_bytes(inventory.would_be)} that are not allocated</div>" if inventory.would_be else "</div>"
    yield from _strays(
        [s for s in inventory.strays if not s.latent], "astray: not where the rest is", "bad", every=every
    )
    yield from _strays(
        [s for s in inventory.strays if s.latent], "would be left behind by the next .to()", "soon", every=every
    )
    if inventory.devices:
        yield "<table><tr><th>device<th class=n>bytes<th class=n>tensors<th></tr>"
        for total in inventory.devices:
            would_be = f"would take {format_bytes(total.would_be)}" if total.would_be else ""
            yield f"<tr><td class=place>{escape(total.name)}<td class=n>{format_bytes(total.nbytes)}"
            yield f"<td class=n>{total.tensors:,}<td class=quiet>{would_be}</tr>"
        yield "</table>"
    shown, left = rows(inventory, depth=depth, every=every)
    if inventory.entries:
        yield "<table><tr><th><th class=n>shape<th>dtype<th>device<th class=n>bytes<th></tr>"
        yield from map(_row, shown)
        yield "</table>"
    if left or any(row.closed for row in shown):
        more = f"{left:,} more rows. " if left else ""
        yield f"<div class=quiet>{more}Not everything is shown: .html(depth=N) goes deeper, all=True shows every tensor.</div>"
    yield from _shared(inventory.tied, "tied: the same by several paths", every=every)
    yield from _shared(inventory.aliases, "aliases: several tensors over one storage", every=every)
    for note in inventory.notes:
        yield f"<div class=quiet>{escape(note)}</div>"


def _count(tensors: int) -> str:
    return f"{tensors:,} tensor{'s' if tensors != 1 else ''}"


def _strays(strays: Sequence[Astray], heading: str, colour: str, *, every: bool) -> Iterator[str]:
    groups = grouped(strays)
    if not groups:
        return
    yield f"<h4 class={colour}>{heading}</h4><dl>"
    shown = groups if every else groups[:_MOST]
    for group in shown:
        stray = group[0]
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        wanted = f", not {' or '.join(stray.expected)}" if not stray.latent and stray.expected else ""
        yield f"<dt><code class={colour}>{escape(stray.entry.shown)}</code>{more} "
        yield f"on <span class=place>{escape(stray.entry.device)}</span>{escape(wanted)}</dt>"
        yield f"<dd><span class=quiet>why</span> it {_code(stray.why)}</dd>"
        yield f"<dd><span class=quiet>fix</span> {_code(stray.fix)}</dd>"
    if len(shown) < len(groups):
        yield f"<dt>and {sum(map(len, groups[len(shown) :]))} more</dt>"
    yield "</dl>"


def _code(sentence: str) -> str:
    """A sentence, with what stands in backticks as code."""
    parts = escape(sentence).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _row(row: Row) -> str:
    name = escape(name_of(row)) + (" <span class=quiet>...</span>" if row.closed else "")
    quiet = "" if row.entry is not None else " quiet"
    return (
        f'<tr><td style="padding-left:{1.2 * min(row.level, 12):.1f}em"><code>{name}</code>'
        f'<td class="n{quiet}">{escape(row.shape)}<td class="{quiet.strip()}">{escape(row.dtype)}'
        f'<td class=place>{escape(row.device)}<td class="n{quiet}">{size_of(row)}<td class=quiet>{escape(extra_of(row))}</tr>'
    )


def _shared(groups: Sequence[Shared], heading: str, *, every: bool) -> Iterator[str]:
    if not groups:
        return
    yield f"<h4>{heading}</h4>"
    shown = groups if every else groups[:_MOST]
    for group in shown:
        paths = group.paths if every else group.paths[:4]
        more = f" and {group.count - len(paths)} more" if group.count > len(paths) else ""
        size = f" <span class=quiet>{format_bytes(group.nbytes)}</span>" if group.nbytes else ""
        yield f"<div>{' = '.join(f'<code>{escape(path)}</code>' for path in paths)}{more}{size}</div>"
    if len(shown) < len(groups):
        yield f"<div>and {len(groups) - len(shown)} more</div>"
