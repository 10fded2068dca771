"""Every cause by its own examples: small programs that fail for it."""

from __future__ import annotations

import textwrap

import pytest

import wherry
from wherry.explain import causes
from wherry.explain.causes._cause import Cause, Example

EXAMPLES = [(cause, example) for cause in causes.every() for example in cause.examples]
WITHOUT = {
    "not-moved",  # answers when no other does: nothing particular to show
}


@pytest.mark.parametrize(("cause", "example"), EXAMPLES, ids=lambda value: getattr(value, "name", ""))
def test_the_cause_is_recognised(cause: Cause, example: Example, fail) -> None:
    program = f'import torch\nDEVICE = "{example.device}"\n{textwrap.dedent(example.program)}'

    diagnosis = wherry.explain_exception(fail(program, example.device, example.count, example.profile))

    assert diagnosis is not None
    culprit = diagnosis.culprit
    assert culprit is not None
    assert (culprit.name, culprit.kind) == (example.culprit, cause.name)
    assert culprit.origin is not None
    assert example.origin.strip() in program.splitlines()[culprit.origin.line - 1]


@pytest.mark.parametrize("cause", causes.every(), ids=lambda cause: cause.name)
def test_a_cause_has_examples_and_a_page(cause: Cause) -> None:
    page = (causes.__package__ or "", cause.recognise.__module__)
    doc = __import__(page[1], fromlist=["x"]).__doc__ or ""

    assert cause.recognise.__module__.rpartition(".")[2].replace("_", "-") == cause.name
    assert doc.startswith(f"{cause.name}: ")
    assert all(f"\n{heading}" in doc for heading in ("Why ", "Fix ", "Source "))
    assert cause.examples or cause.name in WITHOUT


def test_the_last_cause_always_answers() -> None:
    assert causes.every()[-1].name == "not-moved"
