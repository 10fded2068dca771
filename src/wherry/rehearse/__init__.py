"""A device you do not have: rehearse it in this process.

Read `session` first (what a rehearsal is), then `mode` (what happens to each op), `laws` and `exceptions` (which operands
may meet), `impersonate/` (what the program sees). Needs torch.
"""

from wherry.rehearse.session import Rehearsal as Rehearsal
from wherry.rehearse.session import Statistics as Statistics
from wherry.rehearse.session import current as current
from wherry.rehearse.session import rehearse as rehearse
