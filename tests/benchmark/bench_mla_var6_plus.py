"""Version v0 of mla_var6_plus at each number of query tokens; flags are those of the version."""

import sys

from bench_table import KERNEL, main

if __name__ == "__main__":
    sys.exit(main("mla_var6_plus_v0", [*KERNEL, "mla_var6_plus", "v0"], sys.argv[1:]))
