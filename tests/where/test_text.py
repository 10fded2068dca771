"""What people see: the text at two widths, folded rows, and HTML that is safe and self-contained."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser

import pytest
import torch
from rich.console import Console
from torch import nn

import wherry
from wherry import Inventory, where
from wherry.where import Astray, Entry, Role, Shared, Total
from wherry.where.inventory import Branch
from wherry.where.printable import printable_json


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(5000, 256, device="meta")
        self.pos = torch.empty(128, 256, device="meta")
        layer = nn.TransformerEncoderLayer(256, 4, 512, device="meta")
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.head = nn.Linear(256, 5000, device="meta")
        self.head.weight = self.emb.weight


GPT = """\
model  Gpt  147 tensors, 0 B (and 29.2 MiB that are not allocated) on meta,
float32

would be left behind by the next .to()
  model.pos  on meta
    why  it is a plain attribute of Gpt, neither a parameter nor a buffer
    fix  In Gpt.__init__, write `self.register_buffer('pos', pos,
         persistent=False)`.

                                 shape  dtype    device       bytes
  model                    147 tensors  float32  meta    (29.2 MiB)
    .emb.weight               5000x256  float32  meta     (4.9 MiB)
    .layers.layers         144 tensors  float32  meta    (24.1 MiB)
      [0..11]  x 12        144 tensors  float32  meta    (24.1 MiB)
        .self_attn           4 tensors  float32  meta       (1 MiB)
          .in_proj_weight      768x256  float32  meta     (768 KiB)
          .in_proj_bias            768  float32  meta       (3 KiB)
          .out_proj          2 tensors  float32  meta     (257 KiB)
            .weight            256x256  float32  meta     (256 KiB)
            .bias                  256  float32  meta       (1 KiB)
        .linear1             2 tensors  float32  meta     (514 KiB)
          .weight              512x256  float32  meta     (512 KiB)
          .bias                    512  float32  meta       (2 KiB)
        .linear2             2 tensors  float32  meta     (513 KiB)
          .weight              256x512  float32  meta     (512 KiB)
          .bias                    256  float32  meta       (1 KiB)
        .norm1               2 tensors  float32  meta       (2 KiB)
          .weight                  256  float32  meta       (1 KiB)
          .bias                    256  float32  meta       (1 KiB)
        .norm2               2 tensors  float32  meta       (2 KiB)
          .weight                  256  float32  meta       (1 KiB)
          .bias                    256  float32  meta       (1 KiB)
    .head.bias                    5000  float32  meta    (19.5 KiB)
    .pos                       128x256  float32  meta     (128 KiB)

tied: the same by several paths
  model.emb.weight = model.head.weight"""


def test_a_transformer_fits_a_screen() -> None:
    assert where(Gpt()).text(width=80) == GPT


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_it_may_be(width: int) -> None:
    text = where(Gpt()).text(width=width)

    assert max(map(len, text.splitlines())) <= width


def test_classes_and_roles_are_shown_where_there_is_room() -> None:
    text = where(Gpt()).text(width=120)

    assert "MultiheadAttention" in text
    assert "parameter" in text


def astray() -> Inventory:
    with wherry.rehearse("cuda"):
        return where({"x": torch.ones(300, device="cuda"), "y": [torch.ones(2), torch.ones(3)]})


def test_strays_come_first_and_one_change_is_one_paragraph() -> None:
    with wherry.rehearse("cuda"):
        x = torch.ones(300, device="cuda")
        text = where({"x": x, "x2": x + 1, "y": [torch.ones(2), torch.ones(3)]}).text(width=80)

    assert (
        text
        == """\
batch  dict  4 tensors, 2.4 KiB, float32

astray: not where the rest is
  batch['y'][0] and 1 more  on cpu, not cuda:0
    why  it is not where the rest of batch is
    fix  Move all of it at once: batch = wherry.move(batch, 'cuda:0').

cuda:0   2.3 KiB   2 tensors
cpu         20 B   2 tensors

                shape  dtype    device         bytes
  batch     4 tensors  float32  cpu, cuda:0  2.4 KiB  dict
    ['x']         300  float32  cuda:0       1.2 KiB  item
    ['x2']        300  float32  cuda:0       1.2 KiB  item
    ['y']   2 tensors  float32  cpu             20 B  list
      [0]           2  float32  cpu              8 B  item
      [1]           3  float32  cpu             12 B  item"""
    )


def test_depth_and_all() -> None:
    found = where(
        {"a": {"b": {"c": {"d": torch.ones(1), "e": torch.ones(1)}}}, "l": [torch.ones(1) for _ in range(300)]}
    )

    assert "['d']" not in found.text(depth=1)
    assert "Not everything is shown: depth=N goes deeper" in found.text(depth=1)
    assert "[0..299]  x 300" in found.text()
    assert "[299]" in found.text(all=True)
    assert "Not everything" not in found.text(all=True)


def test_many_different_rows_are_cut_and_counted() -> None:
    found = where({f"k{n}": torch.ones(n) for n in range(1, 500)})

    assert len(found.text().splitlines()) < 50
    assert re.search(r"\.\.\. and 46\d more rows", found.text())


def test_nothing() -> None:
    assert str(where({})) == "batch  dict  0 tensors"


def test_rich_prints_it() -> None:
    console = Console(width=80, record=True, file=io.StringIO())

    console.print(where([torch.ones(3)]))

    assert "batch  list  1 tensor" in console.export_text()


class Tags(HTMLParser):
    """Notes each tag and each address."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_html_escapes_what_the_program_wrote() -> None:
    found = where({"<script>alert(1)</script>": torch.ones(1), "&": [torch.ones(1)]})

    tags = Tags()
    tags.feed(found._repr_html_())

    assert "script" not in tags.tags
    assert tags.addresses == []
    assert "&lt;script&gt;" in found._repr_html_()


def test_html_that_is_not_escaped_would_be_noticed() -> None:
    """The twin."""
    tags = Tags()
    tags.feed("<p><script src=x></script>")

    assert tags.tags == ["p", "script"]
    assert tags.addresses == ["x"]


def test_html_says_what_the_text_says() -> None:
    html = astray()._repr_html_()

    plain = re.sub(r"<style>.*?</style>|<[^>]+>", "", html, flags=re.DOTALL)
    assert "astray: not where the rest is" in plain
    assert "wherry.move(batch, &#x27;cuda:0&#x27;)" in plain
    assert html.count("<table>") == html.count("</table>") == 2


def test_repr_is_one_line() -> None:
    assert repr(where([torch.ones(3)])) == "<Inventory of batch: 1 tensor, cpu 12 B>"


ESCAPE = "\x1b[2J\x1b]0;title\x07\x9b31m\n\u202efake\ud800"


def hostile() -> Inventory:
    """With what moves cursors wherever a file or a program has the word."""
    root = Branch(None, f"a{ESCAPE}", f"b{ESCAPE}")
    inner = Branch(root, f".c{ESCAPE}", f"d{ESCAPE}")
    entries = [
        Entry(branch, f".e{ESCAPE}{n}", Role.ITEM, f"f{ESCAPE}{n}", f"g{ESCAPE}{n}", (n,), n, note=f"h{ESCAPE}")
        for n in range(3)
        for branch in (root, inner)
    ]
    return Inventory(
        f"i{ESCAPE}", f"j{ESCAPE}",
        (Astray(entries[0], (f"k{ESCAPE}",), False, f"l{ESCAPE}", f"m{ESCAPE}"),),
        tuple(entries),
        tuple(Total(f"n{ESCAPE}{n}", 1, 1, 0) for n in range(2)),
        tuple(Total(f"o{ESCAPE}{n}", 1, 1, 0) for n in range(2)),
        (Shared((f"p{ESCAPE}", f"q{ESCAPE}"), 2, 1),),
        (Shared((f"r{ESCAPE}", f"s{ESCAPE}"), 2, 1),),
        (f"t{ESCAPE}",),
    )  # fmt: skip


def test_what_steers_a_terminal_is_escaped() -> None:
    found = hostile()

    for text in (str(found), found.text(all=True, width=300), repr(found), found.html(), found.html(all=True)):
        assert all(line.isprintable() for line in text.split("\n"))
        assert "fake line" not in text.splitlines()
    for letter in "abcdefghijklmnopqrst":
        assert letter + r"\x1b[2J\x1b]0;title\x07\x9b31m\n\u202efake\ud800" in found.text(all=True, width=3000)


def test_json_that_can_be_shown_is_the_same_value() -> None:
    value = {"a" + ESCAPE: ["\U000e0001", "\\", "\u00e4 \u65e5", 'q"']}

    text = printable_json(value)

    assert all(line.isprintable() for line in text.split("\n"))
    assert json.loads(text) == value
    assert "\u00e4 \u65e5" in text
