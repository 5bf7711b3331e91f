"""Schema of an annotated CUTLASS example, ``knowledge/examples/<id>.toml``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]
Line = Annotated[str, Field(min_length=1, pattern=r"^[^\n]+$")]
_PATH = r"^[A-Za-z0-9_+-][A-Za-z0-9._+-]*(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)*$"

#: The checklist: what to look for in an example, by id.
PatternId = Literal[
    "tma-pipeline",
    "warp-specialization",
    "persistent-loop",
    "online-softmax",
    "register-accumulators",
    "shared-memory-swizzle",
    "cluster-communication",
    "epilogue",
    "boundary-handling",
    "pipeline-drain",
]

PATTERN_TITLES: dict[PatternId, str] = {
    "tma-pipeline": "Multi-stage pipeline of asynchronous copies",
    "warp-specialization": "Warp and warpgroup specialization",
    "persistent-loop": "Persistent loop",
    "online-softmax": "Online softmax",
    "register-accumulators": "Accumulators",
    "shared-memory-swizzle": "Shared-memory swizzles",
    "cluster-communication": "Cluster communication",
    "epilogue": "Epilogue",
    "boundary-handling": "Boundary handling",
    "pipeline-drain": "Pipeline drain",
}


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Annotation(_Model):
    """Words for one line of an example."""

    line: int = Field(ge=1)
    text: Text


class Found(_Model):
    """One entry of the checklist that an example shows.

    Attributes:
        pattern: Which.
        seen: What was found, in words: names in the source, figures of the compiled code.
        lines: Lines of the source that show it.
    """

    pattern: PatternId
    seen: Text
    lines: tuple[int, ...] = ()


class CompiledKernel(_Model):
    """Static facts of one device kernel of an example, compiled with the arguments it defaults to.

    The fields are those of ``records.CuteFacts``, without its tables.
    """

    kernel: str
    registers: int
    stack_bytes: int
    spill_loads: int
    spill_stores: int
    shared_bytes: int
    threads_per_block: int
    blocks_per_cluster: int
    instructions: int
    mma_path: str
    wgmma: int
    wgmma_waits: int
    tcgen05_mma: int
    warp_mma: int
    tma_loads: int
    tma_stores: int
    tma_multicast: int
    async_copies: int
    mbarriers: int
    pipeline_stages: int | None = None
    register_budgets: tuple[str, ...] = ()
    occupancy: str | None = None


class Compiled(_Model):
    """What compiling an example without a GPU gave.

    Attributes:
        toolchain: Version of the DSL.
        kernels: Facts by device kernel; empty when it was not compiled.
        reason: Why it was not compiled, in one sentence.
    """

    toolchain: str
    kernels: tuple[CompiledKernel, ...] = ()
    reason: Line | None = None


class Example(_Model):
    """A file of another repository, and what to see in it.

    Attributes:
        title: One line.
        repository: Its address.
        path: The file, below the top of the repository.
        commit: The commit that the lines are those of.
        blob: git's id of the file, which tells whether it changed.
        topics: What it is about, by ids of the checklist or words in kebab-case.
        category: Folder of its kind, such as ``hopper/attention``.
        arch: The arch that it is written for.
        goal: What it teaches.
        kernels: Its device functions.
        length: Lines of the file.
        annotations: Words for its lines.
        checklist: What it shows of the checklist.
        compiled: What compiling it gave; None where that was not tried.
    """

    title: Line = Field(max_length=90)
    repository: str = Field(pattern=r"^https://[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)+$")
    path: str = Field(pattern=_PATH)
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    blob: str | None = Field(None, pattern=r"^[0-9a-f]{40}$")
    topics: tuple[Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")], ...] = Field(
        min_length=1
    )
    category: str = ""
    arch: str = ""
    goal: str = ""
    kernels: tuple[str, ...] = ()
    length: int = Field(0, ge=0)
    annotations: tuple[Annotation, ...] = ()
    checklist: tuple[Found, ...] = ()
    compiled: Compiled | None = None

    def address(self, line: int | None = None) -> str:
        """Where the file, or a line of it, can be read."""
        anchor = "" if line is None else f"#L{line}"
        return f"{self.repository}/blob/{self.commit}/{self.path}{anchor}"
