"""The pages say what is so: their examples run, their links lead somewhere, their words are the code's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from wherry import backends
from wherry.cli.devices import gather, to_json

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


PROGRAMS = [(page, program) for page in PAGES for program in blocks(page, "python")]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "program"), PROGRAMS, ids=[page.name for page, _ in PROGRAMS])
def test_programs_on_a_page_run(page: Path, program: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")

    missing = [page.name for page in PAGES if page.name != "index.md" and f"({page.name})" not in index]

    assert missing == []


def test_index_names_every_key_of_the_devices_json() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    found = to_json(gather())
    assert isinstance(found["backends"], list)

    unnamed = [key for key in {*found, *found["backends"][0]} if f"`{key}`" not in index]

    assert unnamed == []


def test_backends_page_names_every_backend_file() -> None:
    text = (DOCS / "backends.md").read_text(encoding="utf-8")

    for backend in backends.all():
        assert f"{backend.name}.py" in text


def test_explain_page_names_every_cause() -> None:
    from wherry.explain import causes

    text = (DOCS / "explain.md").read_text(encoding="utf-8")

    for cause in causes.every():
        assert f"\n| {cause.name} |" in text
