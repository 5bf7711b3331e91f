"""``python -m mla_var3.kernel.cute_python.attention.cutlass_hopper_fmha [V]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="cutlass_hopper_fmha", language="cute-dsl")
