"""Static analysis of compiled kernels without a GPU: SASS, occupancy, and source lines.

Start at :func:`mla_var3.languages.cutile.compile.compile_kernel` for one kernel,
:func:`mla_var3.languages.stage_facts.analyse` for a runtime object, and
:func:`mla_var3.languages.ranking.rank` for choosing among tilings.
"""
