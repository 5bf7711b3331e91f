"""Compiles cuTile kernels for any arch without a GPU, and reads what the compiler made of them.

Start at :func:`mla_var3.languages.cutile.compile.compile_kernel` for one kernel,
:func:`mla_var3.languages.stage_facts.analyse` for a runtime object, and
:func:`mla_var3.languages.ranking.rank` for choosing among tilings.
"""
