"""The public names: loaded on first use, listed, and not hidden by the modules they live in."""

from __future__ import annotations

import subprocess
import sys

import pytest

import wherry


@pytest.mark.parametrize("name", wherry.__all__)
def test_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(wherry, name).__module__.startswith("wherry.")
    assert name in dir(wherry)


def test_names_are_sorted_and_unique() -> None:
    assert wherry.__all__ == sorted(set(wherry.__all__))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'wherry' has no attribute 'pcik'"):
        getattr(wherry, "pcik")  # noqa: B009 - the type checker would refuse it written plainly


@pytest.mark.parametrize("name", ["compile", "pick", "rehearse", "where"])
@pytest.mark.parametrize(
    "first",
    ["import wherry.{0}", "from wherry.{0} import *", "import wherry; wherry.{0}", "from wherry import {0}"],
)
def test_function_is_not_hidden_by_the_module_of_its_name(name: str, first: str) -> None:
    program = f"{first.format(name)}\nimport wherry, sys\nassert callable(wherry.{name}), wherry.{name}"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_every_public_error_is_importable_from_the_top() -> None:
    from wherry import errors

    classes = [
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    ]

    assert set(classes) <= set(wherry.__all__)
