"""References of the DSLs: our words on every public name, held to the installed packages.

``knowledge/references/<name>/`` holds a ``reference.toml``, a file per chapter with our words, and
``installed.json``, which is what the installed package says of itself: kinds, parameters, members,
and what its front end makes of an operation. Snippets stand in Python files that a test runs.
"""
