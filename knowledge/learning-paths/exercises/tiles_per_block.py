"""Tiles of the busiest block of hopper_gemm v3 at 8192 cubed on an H200, by its own sizes."""

from mla_var3 import devices
from mla_var3.kernel.cute_python.gemm.hopper_gemm.hopper_gemm_v3 import hopper_gemm_v3 as version
from mla_var3.kernel.cute_python.kit.gemm_tiles import TILE_N

sms = devices.load("nvidia-h200-sxm").sm_count
tiles = -(-8192 // version.Kernel.tile_m()) * -(-8192 // TILE_N)
print(f"{tiles} tiles, {sms} blocks")
print(-(-tiles // sms))
