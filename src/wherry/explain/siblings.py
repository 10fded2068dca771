"""What hangs beside a stray and is where the stray is: it would fail next."""

from __future__ import annotations

from wherry import tree
from wherry.explain.scene import Scene
from wherry.explain.stray import Stray
from wherry.explain.suspects import HOSTS_OWN
from wherry.explain.tensors import facts_of
from wherry.tree import Found, Kind


def siblings_of(stray: Stray, path: Found | None, scene: Scene, most: int = 200) -> list[str]:
    """What hangs beside the stray on a path to it, and is where the stray is: it would fail next."""
    if path is None or not path.owners or stray.facts is None:
        return []
    root = (path.root, path.owners[0])
    names: list[str] = []
    for found in tree.search([root], most=4_000, deadline=scene.deadline):
        if len(names) >= most:
            break
        if (
            not tree.is_tensor(found.value)
            or found.value is stray.value
            or any(s.kind is Kind.GRAD for s in found.steps)
        ):
            continue
        facts = facts_of(found.value)
        if found.steps and found.steps[-1].key in HOSTS_OWN:
            continue
        if (
            facts.device == stray.device
            and (facts.dim > 0 or stray.facts.dim == 0)
            and facts.storage != stray.facts.storage
        ):
            names.append(found.text)
    return names
