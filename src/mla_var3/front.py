"""The first thing a command imports: light, so that an interrupt while the rest loads ends well."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

from mla_var3.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED


def run(target: str, **arguments: Any) -> NoReturn:
    """Import and call ``module:function``; an interrupt ends with one sentence and code 130.

    Args:
        target: Such as ``mla_var3.runtime.cli:main``.
        arguments: What the function is called with.
    """
    module, _, name = target.partition(":")
    try:
        sys.exit(getattr(importlib.import_module(module), name)(**arguments))
    except KeyboardInterrupt:
        print("interrupted; nothing half-written is left", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:  # No room for a library's temporary files, say.
        print(f"error: {error.strerror or error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
