"""Command-line flags of a kernel version: derives them from plan and tiling fields, parses argv.

``to_argv`` turns a plan back into the flags that ``parse`` reads.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from mla_var3 import arguments
from mla_var3.errors import UsageError
from mla_var3.runtime import KernelPlan, Tiling
from mla_var3.workloads import check_minima, option

ProfType = Literal["disabled", "static", "event", "annotation", "ncu", "nsys"]


AsDefault = Literal["default"]
AS_DEFAULT: AsDefault = "default"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run: everything that is not part of the problem or a tiling."""

    prof_type: ProfType | None = option(
        None,
        "what to do: static and disabled need no GPU; by default annotation with a GPU (event "
        "where its profiler is missing), else static",
    )
    check: bool = option(
        False,
        "in mode disabled on a GPU: compare the outputs with the reference (all else always does)",
    )
    no_autotune: bool = option(False, "use the default tilings instead of tuned ones")
    retune: bool = option(False, "tune again even where a tuned tiling is stored")
    tune_max_iters: int = option(32, "tilings to time (or compile) per stage at most", minimum=1)
    bench_runs: int = option(50, "timed runs", minimum=1)
    out_dir: Path | None = option(None, "folder for bulk artefacts (default: out/)")
    device: str | None = option(
        None,
        "mode static: device that open sizes and grids are made for (default: one of the arch)",
    )
    arch: str | None = option(
        None, "mode static: archs, comma separated (default: the language's, or the device's)"
    )
    verbose: bool = option(False, "print every stage and every limit, not one line per target")
    lang: str | None = option(
        None, "language, where the design exists in several (the same as DESIGN@LANGUAGE)"
    )


def tyro_field(
    field: dataclasses.Field[Any], hint: Any, *markers: Any
) -> tuple[str, Any, dataclasses.Field[Any]]:
    """Name, type and default of a flag, from the field that declares it."""
    # The help says itself what None stands for.
    behavior = "" if field.default is None else None
    about = tyro.conf.arg(help=field.metadata.get("help", ""), help_behavior_hint=behavior)
    annotated: Any = Annotated[hint, about]
    for marker in markers:
        annotated = marker[annotated]
    return field.name, annotated, dataclasses.field(default=field.default)


def _overrides(stage: str, tiling_type: type[Tiling]) -> type:
    """A dataclass like the tiling's whose fields may also be left as the default tiling has them.

    None cannot say that: it is a value of its own where a hint is the compiler's choice.
    """
    hints = get_type_hints(tiling_type)
    fields = []
    for field in dataclasses.fields(tiling_type):
        name, annotated, _ = tyro_field(field, hints[field.name] | AsDefault)
        fields.append((name, annotated, AS_DEFAULT))
    return dataclasses.make_dataclass(f"{stage}_tiling", fields, frozen=True)


def argument_type(plan_class: type[KernelPlan]) -> Any:
    """The dataclass whose fields are all flags of a version.

    Fields of a single stage's tiling are plain flags; with several stages they are prefixed by
    the stage (``--latent.tile_m``).
    """
    types = plan_class.benchmark_kernel_argparse()
    fields = [tyro_field(f, types[f.name]) for f in plan_class.option_fields()]
    run_hints = get_type_hints(RunOptions)
    # A problem's booleans have both forms, so that a plan can always be written as flags.
    fields += [
        tyro_field(f, run_hints[f.name], tyro.conf.FlagCreatePairsOff)
        for f in dataclasses.fields(RunOptions)
    ]
    single = len(plan_class.tiling_types) == 1
    for stage, tiling_type in plan_class.tiling_types.items():
        group = _overrides(stage, tiling_type)
        hint = Annotated[group, tyro.conf.arg(name="")] if single else group
        fields.append((stage, hint, dataclasses.field(default_factory=group)))
    return dataclasses.make_dataclass("Arguments", fields, frozen=True)


def parse(
    plan_class: type[KernelPlan], argv: list[str], prog: str = "kernel"
) -> tuple[KernelPlan, RunOptions]:
    """The plan and run options that ``argv`` asks for.

    Args:
        plan_class: The version's plan class.
        argv: Flags only, the design and version already taken off.
        prog: Name in the usage line.

    Raises:
        SystemExit: ``--help`` was asked for; code 0.
        HyperMlaError: A malformed flag, or sizes or tilings that make no sense.
    """
    found = arguments.parse(argument_type(plan_class), argv, prog, plan_class.__doc__)
    values = {f.name: getattr(found, f.name) for f in plan_class.option_fields()}
    plan = plan_class(**values)
    plan.validate()
    tilings = {}
    for stage in plan_class.tiling_types:
        group = getattr(found, stage)
        chosen = {k: v for k, v in vars(group).items() if v != AS_DEFAULT}
        if chosen:
            tilings[stage] = dataclasses.replace(plan.default_tiling(stage), **chosen)
    plan = dataclasses.replace(plan, tilings=tilings)
    for stage in tilings:
        plan.tiling(stage)
    options = RunOptions(**{f.name: getattr(found, f.name) for f in dataclasses.fields(RunOptions)})
    check_minima(options, UsageError, "--")
    return plan, options


def to_argv(plan: KernelPlan) -> list[str]:
    """Flags that ``parse`` turns into ``plan`` again."""
    argv = []
    for name, value in plan.problem().items():
        argv += _flag(name, value)
    single = len(plan.tiling_types) == 1
    for stage, tiling in plan.tilings.items():
        for field in dataclasses.fields(tiling):
            name = field.name if single else f"{stage}.{field.name}"
            argv.append(f"--{name}={getattr(tiling, field.name)}")
    return argv


def _flag(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else [f"--no_{name}"]
    return [f"--{name}={value}"]
