"""Subprocess that runs one plan from a file, for profilers that start their target themselves.

A profiler that ran the user's own command again would meet whatever else that does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mla_var3 import forked, front
from mla_var3.errors import ToolchainError
from mla_var3.paths import write_atomic
from mla_var3.profiling.job import Job
from mla_var3.runtime import registry, waiting
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan

SPEC = "plan.json"
#: A profiler runs a launch again for each group of counters; it may wait that often.
PASSES = 10


def write(folder: Path, job: Job) -> Path:
    """The plan of a job as a file that ``read`` makes a plan again."""
    plan = job.plan
    content = {
        "design": job.version.qualified,
        "version": job.version.version,
        "problem": plan.problem(),
        "tilings": {stage: tiling.values() for stage, tiling in plan.tilings.items()},
    }
    path = folder / SPEC
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def read(path: Path) -> KernelPlan:
    """The plan of a file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    plan_class = registry.find(content["design"], content["version"]).plan_class()
    types = plan_class.tiling_types
    tilings = {stage: types[stage](**values) for stage, values in content["tilings"].items()}
    return plan_class(**content["problem"], tilings=tilings)


def bind(path: Path) -> RuntimeObject:
    """The kernels of a plan's file, bound on the GPU."""
    from mla_var3.profiling import binding

    return binding.bind(binding.resolve_for_gpu(read(path)))


def command(spec: Path, module: str = __name__) -> list[str]:
    """The command that runs the plan of a file."""
    return [sys.executable, "-m", module, str(spec)]


def run(arguments: Sequence[str], tool: str, environment: Mapping[str, str] | None = None) -> str:
    """What a profiler's command prints.

    Args:
        arguments: The command.
        tool: Its name in sentences.
        environment: Its environment; this process's own by default.

    Raises:
        ToolchainError: It ended with an error, and says what it said last; or it did not end.
    """
    seconds = PASSES * waiting.limit_s()
    try:
        done = subprocess.run(
            arguments, capture_output=True, encoding="utf-8", errors="replace", check=False,
            timeout=seconds, env=environment, preexec_fn=forked.die_with_parent,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ToolchainError(
            f"{tool} has not ended after {seconds:g} s ({waiting.VARIABLE} allows longer)"
        ) from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-400:]
        raise ToolchainError(f"{tool} ended with code {done.returncode}: {said}")
    return done.stdout


def main() -> int:
    """Run the plan that the command line names once."""
    bind(Path(sys.argv[1]))()
    waiting.synchronize()
    return 0


if __name__ == "__main__":
    front.run("mla_var3.profiling.replay:main")
