"""pytest: a test that fails with a device error carries its explanation in the report.

Imported by every pytest run of everybody who has wherry installed, so it imports nothing until a test has failed, and
never torch: where torch is not loaded there is no device error.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    if call.excinfo is not None and "wherry.rehearse" in sys.modules:
        _hide_machinery(call.excinfo.value)
    outcome = yield
    if call.excinfo is None or "torch" not in sys.modules:
        return
    report: pytest.TestReport = outcome.get_result()
    if not report.failed:
        return
    from wherry.explain import explain_exception
    from wherry.explain.context import is_explained

    error = call.excinfo.value
    with contextlib.suppress(Exception):  # a fault of ours must not cost anybody a test report
        diagnosis = None if is_explained(error) else explain_exception(error)
        if diagnosis is not None:
            report.sections.append(("wherry", str(diagnosis)))


def _hide_machinery(error: BaseException) -> None:
    """Let pytest leave out the frames of a rehearsal, which the program without one would not have (not by --full-trace)."""
    entry = error.__traceback__
    while entry is not None:
        names = entry.tb_frame.f_globals
        if str(names.get("__name__", "")).startswith(("wherry.rehearse", "wherry.dispatch", "wherry.storage")):
            names["__tracebackhide__"] = True
        entry = entry.tb_next
