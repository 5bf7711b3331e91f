"""Reference manuals of cuTile and the CuTe DSL: our text on each public name, checked for gaps.

``knowledge/references/<name>/`` holds a ``reference.toml``, a file per chapter with our words, and
``installed.json``, which lists the installed package's own names: kinds, parameters, members, and
what its front end makes of an operation. Snippets stand in Python files that a test runs.
"""
