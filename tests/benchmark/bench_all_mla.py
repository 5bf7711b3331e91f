"""Every design and version of MLA at each number of query tokens, in one comparison CSV.

``python tests/benchmark/bench_all_mla.py [flags of nox -s bench]``; ``--s=16`` for one problem.
"""

import sys

from bench_table import BENCH, main

if __name__ == "__main__":
    sys.exit(main("all_mla", BENCH, sys.argv[1:]))
