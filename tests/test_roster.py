"""A folder of files and an entry-point group become one roster."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from wherry import roster


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable package `crew` to put files into."""
    package = tmp_path / "crew"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] in {"crew", "guest"}]:
        del sys.modules[name]


def member(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)


def guest(folder: Path, points: str, text: str = "") -> None:
    """Another distribution, installed beside the package, that offers entry points."""
    (folder.parent / "guest.py").write_text(text)
    info = folder.parent / "guest-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[crew.members]\n{points}\n")


def read() -> roster.Roster[str]:
    package: ModuleType = importlib.import_module("crew")
    return roster.read(package, binding="MEMBER", kind=str, name=str.lower, group="crew.members")


def test_files_are_on_the_roster_in_the_order_of_their_names(folder: Path) -> None:
    member(folder, "stroke", "MEMBER = 'Stroke'")
    member(folder, "bow", "MEMBER = 'Bow'")

    assert read().entries == ("Bow", "Stroke")


def test_files_with_an_underscore_are_not_on_the_roster(folder: Path) -> None:
    member(folder, "_private", "raise AssertionError('imported')")

    assert read().entries == ()


def test_own_file_that_binds_nothing_is_our_bug(folder: Path) -> None:
    member(folder, "empty", "")

    with pytest.raises(TypeError, match=r"crew\.empty must bind MEMBER to a str"):
        read()


def test_own_file_that_fails_is_our_bug(folder: Path) -> None:
    member(folder, "bad", "1 / 0")

    with pytest.raises(ZeroDivisionError):
        read()


@pytest.mark.parametrize("target", ["guest:MEMBER", "guest"], ids=["object", "module that binds it"])
def test_third_party_joins_by_entry_point(folder: Path, target: str) -> None:
    member(folder, "bow", "MEMBER = 'Bow'")
    guest(folder, f"cox = {target}", "MEMBER = 'Cox'")

    found = read()

    assert found.entries == ("Bow", "Cox")
    assert found.broken == ()


@pytest.mark.parametrize(
    ("target", "text", "reason"),
    [
        ("guest:MEMBER", "1 / 0", "ZeroDivisionError: division by zero"),
        ("guest:MEMBER", "import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("guest:MEMBER", "", "AttributeError: module 'guest' has no attribute 'MEMBER'"),
        ("guest", "", "TypeError: the module binds no MEMBER"),
        ("guest:MEMBER", "MEMBER = 7", "TypeError: it is a int, not a str"),
        ("guest:MEMBER", "MEMBER = 'BOW'", "ValueError: the name 'bow' is taken"),
    ],
)
def test_broken_third_party_is_reported_and_breaks_nothing(folder: Path, target: str, text: str, reason: str) -> None:
    member(folder, "bow", "MEMBER = 'Bow'")
    guest(folder, f"cox = {target}", text)

    found = read()

    assert found.entries == ("Bow",)
    assert found.broken == (roster.Broken("cox", f"{target} (guest 1.0)", reason),)
