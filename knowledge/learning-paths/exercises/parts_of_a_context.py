"""Parts into which flash_mla v5 cuts one long context: its plan, asked."""

from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v5 import flash_mla_v5 as version

print(version.Plan(b=1, h=128, s=1, t=32768).part_count)
