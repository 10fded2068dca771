"""The post-mortem: name the one tensor that did not get moved, say why, and how to fix it.

`explain_exception(e)` answers with a `Diagnosis`; `with explain():` adds its text to a device error that passes through.
Nothing is installed and nothing is watched: until something fails, it costs nothing, on real devices and in rehearsals.

    message     the text of an error, taken apart                       tensors    what may be known of a tensor
    source      the program's text: expressions, assignments            idioms     PyTorch's: factories, movements
    frames      expressions looked up in live frames                    scene      an exception: operands and their names
    suspects    which of them strayed                                   case       a stray with all its circumstances
    origin      where it comes from: records, else `written`, the source    causes/    one file: one reason, its fix, examples
    postmortem  all of that in turn, and never an exception             diagnosis, text    the answer, and a few lines of it
    context     `with explain():`
    log         the tracebacks of a pasted log                          logged     their frames, by what `belief/` makes of the
    general     what a message means where nothing more is known                   source: the program's statements in order

How a real program is read without running any of its code is in `wherry.tree` and `frames`. What was hard: a temporary has
no name, so what it was computed from must be found (`suspects`); a name says little, so what holds the thing is looked for
(`case.path`); and a real device keeps no record of who made what, so the source has to tell (`origin`).
"""

from __future__ import annotations

from wherry.explain.context import Explaining as Explaining
from wherry.explain.context import explain as explain
from wherry.explain.diagnosis import Diagnosis as Diagnosis
from wherry.explain.postmortem import explain_exception as explain_exception
