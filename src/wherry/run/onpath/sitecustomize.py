"""What a child Python process does first: wait for torch, then take part in the rehearsal it was started in.

Python imports this file by the name `sitecustomize` at its start, because `wherry run` put its folder first on
PYTHONPATH. A process that never imports torch pays for one finder in `sys.meta_path` and nothing else: neither wherry
nor torch is imported here. The `sitecustomize` that would have been found without us is imported in our stead.

It cannot reach processes started with `-I` or `-E` (PYTHONPATH is ignored) or `-S` (no sitecustomize).

`wherry run` itself imports `when_torch_arrives` from here under the file's full name, so that a program and its children
start their rehearsals at the same moment.

Source: Python documentation, "site: Site-specific configuration hook"; importlib, "Import hooks".
"""

import os
import sys


class TorchArrival:
    """A finder that lets the others find torch, and calls back once, right after its import has completed."""

    def __init__(self, then):
        self.then = then
        self.over = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.over:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader):
        run_module = loader.exec_module

        def exec_module(module):
            # The loader is torch's `__loader__` afterwards: leave it as it was found.
            del loader.exec_module
            run_module(module)
            if not self.over:
                self.cancel()
                self.then()

        # On the instance, so that the type of the loader stays what tools expect. A finder makes one for each search.
        loader.exec_module = exec_module

    def cancel(self):
        self.over = True
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def when_torch_arrives(then):
    """Call `then` on the thread that imports torch, right after that; now, if torch is here already."""
    arrival = TorchArrival(then)
    if "torch" in sys.modules:
        arrival.over = True
        then()
    else:
        sys.meta_path.insert(0, arrival)
    return arrival


def _take_part():
    try:
        _load_the_parents_wherry()
        from wherry.run.children import take_part

        take_part()
    except Exception as err:  # whatever it is, the child must run as it would without us
        text = f"{type(err).__name__}: {err}".replace("\n", " ")
        print(f"wherry: process {os.getpid()} takes no part in the rehearsal: {text}", file=sys.stderr)


def _load_the_parents_wherry():
    # The child may be another Python, where wherry is not installed, or another version of it is.
    if "wherry" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = spec_from_file_location("wherry", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    assert spec is not None  # the file is there: this one is in a folder beside it
    assert spec.loader is not None
    sys.modules["wherry"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


def _give_way():
    """Import the `sitecustomize` that would have been found without us; like Python, go on when there is none."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    # The import system hands out what stands in sys.modules when this file ends.
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")


if __name__ == "sitecustomize":
    if os.environ.get("WHERRY_ON"):
        when_torch_arrives(_take_part)
    _give_way()
