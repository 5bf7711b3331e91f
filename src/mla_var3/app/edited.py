"""Makes this process import and read one source file as another text; the file stays unchanged.

``app.mutating`` checks wrong kernels by it.
"""

from __future__ import annotations

import importlib._bootstrap_external as bootstrap
import linecache
from pathlib import Path
from typing import Any


def play(path: Path, text: str) -> None:
    """Let this process find ``text`` where the file at ``path`` would be read as source.

    Modules that are imported already are left as they are, and files that were played before.
    """
    real = {str(path), str(path.resolve())}
    cached, read = bootstrap.cache_from_source, Path.read_text
    data = bootstrap.FileLoader.get_data

    def is_it(file: str | Path) -> bool:
        return str(Path(file).resolve()) in real

    def cache_from_source(source: str, *args: Any, **kwargs: Any) -> str:
        if is_it(source):
            raise NotImplementedError
        return str(cached(source, *args, **kwargs))

    def get_data(loader: Any, file: str) -> bytes:
        if not is_it(file):
            return bytes(data(loader, file))
        lines = text.splitlines(keepends=True)
        linecache.cache[file] = (len(text), None, lines, file)
        return text.encode()

    def read_text(self: Path, *args: Any, **kwargs: Any) -> str:
        # What was compiled is kept under the texts of its sources.
        return text if is_it(self) else read(self, *args, **kwargs)

    bootstrap.cache_from_source = cache_from_source  # type: ignore[assignment]
    bootstrap.FileLoader.get_data = get_data  # type: ignore[assignment, method-assign]
    Path.read_text = read_text  # type: ignore[method-assign]
