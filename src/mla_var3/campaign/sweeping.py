"""Runs the cases of a sweep that have no result yet: in this process, or on workers of Dask.

A case is a file. It is written when the case came to its end, so that whatever is killed loses no
case that ended. Times compare within one run only, so that the timed cases of one problem are one
piece of work, which one process runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mla_var3 import evidence, inputs, paths
from mla_var3.campaign import cases, helper
from mla_var3.campaign.cases import Case, Outcome, Sources
from mla_var3.errors import InputError, ToolchainError, UsageError
from mla_var3.paths import write_atomic

if TYPE_CHECKING:
    from distributed import Client, Future

CASES, BEGUN, RESULTS = "cases", "begun", "results"
#: Static cases that one worker takes at a time.
CHUNK = 4
#: How often a case may end the process that runs it.
DEATHS = 3
Done = Callable[[Outcome], None]
Run = Callable[[Sequence[Sequence[Case]]], Iterator[list[Outcome]]]


class Sweep:
    """A sweep's folder.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        self.root = paths.out_dir() / "sweeps" / name
        self.sources = Sources({})

    def path(self, case: Case) -> Path:
        """File of a case with its version's present sources."""
        return self.root / CASES / f"{self.sources.key(case)}.json"

    def outcome(self, case: Case) -> Outcome | None:
        """What came of a case; None where it was not run.

        Raises:
            InputError: The file is not sound; names the field.
        """
        path = self.path(case)
        if not path.is_file():
            return None
        try:
            return Outcome.model_validate(inputs.read_json(path))
        except ValidationError as error:
            raise InputError(f"{CASES}/{path.name}:", inputs.first_fault(error, "case")) from error

    def keep(self, outcome: Outcome) -> None:
        """Keep what came of a case, and its record as that of any run."""
        write_atomic(self.path(outcome.case), outcome.model_dump_json(indent=1) + "\n")
        if outcome.record is not None:
            evidence.write(outcome.record, self.root / RESULTS)

    def todo(self, all_: Iterable[Case], again: bool = False) -> list[Case]:
        """Cases that were not run.

        Args:
            all_: All cases.
            again: Whether those that failed are among them.
        """
        return [
            case
            for case in all_
            if (outcome := self.outcome(case)) is None or (again and outcome.status == "failed")
        ]

    # -- the process that runs a case may end in it -----------------------------------------------

    @contextlib.contextmanager
    def begun(self, case: Case) -> Iterator[int]:
        """Note that a case runs; gives how often it ended the process that ran it."""
        path = self.root / BEGUN / self.path(case).name
        before = int(path.read_text(encoding="utf-8")) if path.is_file() else 0
        write_atomic(path, str(before + 1))
        try:
            yield before
        finally:  # Not where the process is killed.
            path.unlink(missing_ok=True)

    def records(self) -> Path:
        """Write the records of cases that a killed sweep did not come to; returns their folder."""
        root = self.root / RESULTS
        known = {record.digest() for record in evidence.Index(root).records}
        for path in sorted((self.root / CASES).glob("*.json")):
            record = Outcome.model_validate(inputs.read_json(path)).record
            if record is not None and record.digest() not in known:
                evidence.write(record, root)
        return root


def units(todo: Sequence[Case], whole: Sequence[Case]) -> list[list[Case]]:
    """Cases by what one process runs, those that compare in one run together.

    Args:
        todo: Cases that were not run.
        whole: All of them: of timed ones, those of a problem are run together or not at all.
    """
    static = [case for case in todo if case.mode == "static"]
    missing = {_compares(case) for case in todo if case.mode == "event"}
    timed: dict[str, list[Case]] = {}
    for case in whole:
        if case.mode == "event" and _compares(case) in missing:
            timed.setdefault(_compares(case), []).append(case)
    return [*_chunks(static), *timed.values()]


def _chunks(found: Sequence[Case]) -> Iterator[list[Case]]:
    """A few cases of one version and problem, so that a process is worth its start."""
    ordered = sorted(enumerate(found), key=lambda pair: (pair[1].design, pair[1].version, pair[0]))
    for _, group in itertools.groupby(ordered, key=lambda pair: (pair[1].design, pair[1].version)):
        mine = [case for _, case in group]
        yield from (mine[i : i + CHUNK] for i in range(0, len(mine), CHUNK))


def _compares(case: Case) -> str:
    return json.dumps([case.target, sorted(case.problem.items())])


def run(sweep: Sweep, all_: Sequence[Case], how: Run, done: Done, again: bool = False) -> int:
    """Run what was not run; returns how many cases were.

    Args:
        sweep: Where to keep it.
        all_: All cases.
        how: Runs pieces of work.
        done: Told each outcome as it is kept.
        again: Whether those that failed are run again.
    """
    count = 0
    for outcomes in how(units(sweep.todo(all_, again), all_)):
        for outcome in outcomes:
            sweep.keep(outcome)
            done(outcome)
            count += 1
    return count


# -- where they run -------------------------------------------------------------------------------


def here(sweep: Sweep) -> Run:
    """One case after another in this process."""

    def run_all(found: Sequence[Sequence[Case]]) -> Iterator[list[Outcome]]:
        for unit in found:
            for case in unit:
                with sweep.begun(case) as deaths:
                    if deaths < DEATHS:
                        outcome = cases.run(case)
                    else:
                        said = f"it ended the process that ran it {deaths} times"
                        outcome = Outcome(case=case, status="failed", reason=said)
                yield [outcome]

    return run_all


def on_workers(client: Client, sources: Sources, is_timed: bool) -> Run:
    """Pieces of work side by side on workers of Dask, in a process beside each worker.

    Where a worker is killed, another one takes its piece; where a piece ends its workers again and
    again, its cases failed.
    """
    resources = {"GPU": 1} if is_timed else {}

    def begin(unit: Sequence[Case]) -> Future:
        return client.submit(
            helper.isolated, [case.model_dump(mode="json") for case in unit],
            key=f"case-{sources.key(unit[0])}", resources=resources, pure=False, retries=1,
        )  # fmt: skip

    def run_all(found: Sequence[Sequence[Case]]) -> Iterator[list[Outcome]]:
        from distributed import as_completed

        left = iter(sorted(found, key=_size, reverse=True))
        futures: dict[Future, Sequence[Case]] = {}
        ended = as_completed()

        def fill() -> None:
            """A piece per slot: what waits in a worker's queue is not there for an idle one."""
            for unit in itertools.islice(left, max(1, _slots(client, is_timed) - len(futures))):
                future = begin(unit)
                futures[future] = unit
                ended.add(future)

        fill()
        for future in ended:
            unit = futures.pop(future)
            fill()
            if future.status == "finished":
                yield [_checked(Outcome.model_validate(one), sources) for one in future.result()]
            else:
                said = " ".join(str(future.exception()).split())[:500]
                reason = f"no worker came to its end: {said}"
                yield [Outcome(case=case, status="failed", reason=reason) for case in unit]
            future.release()

    return run_all


def _size(unit: Sequence[Case]) -> float:
    """A measure of how long a timed piece takes: the largest ones come first, the rest fills up."""
    sizes = (v for v in unit[0].problem.values() if isinstance(v, int) and not isinstance(v, bool))
    return len(unit) * math.prod(max(1, size) for size in sizes) if unit[0].mode == "event" else 0


def _slots(client: Client, is_timed: bool) -> int:
    """Pieces that the workers can run at once."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if is_timed:
        return sum(int(worker.get("resources", {}).get("GPU", 0)) for worker in workers)
    return sum(worker["nthreads"] for worker in workers)


def _checked(outcome: Outcome, sources: Sources) -> Outcome:
    """An outcome of the sources that are here; a worker with others has run something else."""
    record = outcome.record
    if record is None or cases.builds.state_digest(record.kernel.sources) == sources.state(
        outcome.case
    ):
        return outcome
    said = "its worker has other sources of the version than those here"
    return Outcome(case=outcome.case, status="failed", reason=said)


def gpus() -> int:
    """GPUs that torch sees here."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@contextlib.contextmanager
def client(workers: int, scheduler: str | None, is_timed: bool) -> Iterator[Client]:
    """A client of Dask: of a scheduler that runs, or of workers of our own.

    Workers of our own are threads: what they run is in a process beside each (``helper``).

    Args:
        workers: Processes here; of timed cases one per GPU.
        scheduler: Address of a scheduler; None for workers here.
        is_timed: Whether a worker needs a GPU of its own.

    Raises:
        ToolchainError: Nobody answers at the address, or no worker has a GPU.
        UsageError: There are more workers than GPUs.
    """
    if scheduler is not None:
        try:
            with _dask().Client(scheduler, timeout="10s") as found:
                _require_gpus(found, is_timed)
                yield found
        except (OSError, TimeoutError, ValueError) as error:
            said = " ".join(str(error).split())
            raise ToolchainError(f"no scheduler answers at {scheduler}: {said}") from error
        return
    if is_timed and not helper.has_gpus(workers) and workers > gpus():
        raise UsageError(f"--workers={workers}: timed cases need a GPU each, and here are {gpus()}")
    with helper.prepared(workers, "event" if is_timed else "static"):
        dask = _dask()
        options: dict[str, Any] = {"nthreads": 1, "memory_limit": 0, "dashboard": False,
                                   "resources": {"GPU": 1} if is_timed else {}}  # fmt: skip
        specs = {n: {"cls": dask.Worker, "options": options} for n in range(workers)}
        made = {"cls": dask.Scheduler,
                "options": {"dashboard": False, "port": 0, "host": "127.0.0.1"}}  # fmt: skip
        with (
            dask.SpecCluster(workers=specs, scheduler=made, silence_logs="error") as cluster,
            dask.Client(cluster) as found,
        ):
            yield found


def _dask() -> Any:
    """The module ``distributed``, set to be silent.

    Raises:
        ToolchainError: It is not installed.
    """
    try:
        import dask
        import distributed
    except ImportError as error:
        raise ToolchainError("several workers need Dask: pip install distributed") from error
    dask.config.set({"distributed.logging.distributed": "error"})
    return distributed


def _require_gpus(found: Client, is_timed: bool) -> None:
    workers = found.scheduler_info()["workers"].values()
    if is_timed and not any("GPU" in worker.get("resources", {}) for worker in workers):
        raise ToolchainError(
            "no worker of the scheduler has a GPU to give: start each with "
            "CUDA_VISIBLE_DEVICES=N dask worker ADDRESS --nthreads 1 --resources GPU=1"
        )
