"""MLA-var6+, base: plan of flash_mla on old tokens, flash_attention on the newest, and a combine.

Old tokens by flash_mla v12, the newest by flash_attention v0, and the combine of mla_shared_prefix,
one launch after another; with n = t, flash_attention alone. Any n from 0 to t is right. Where it is
left open it is 0 or t, whichever takes less time by the cost model, and never between: on an H200
either half draws nearly all of the board's 700 W by itself, and so leaves the other next to none.
Time is then joules over watts, joules are linear in n, and the least lies at an end. See the devlog
for what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.mla.mla_var6_plus.common import MixPlan


@dataclass(frozen=True, kw_only=True)
class Plan(MixPlan):
    """Problem and launches."""
