import dataclasses
import math

import torch

from mla_var3.evidence.revisions import revision
from mla_var3.workloads.gemm import GemmProblem
from mla_var3.workloads.mla import LatentProblem
from mla_var3.workloads.observing import figures, name_of, observe, problem_of


class Small(GemmProblem):
    """Two small products."""

    def check_plans(self):
        return [dataclasses.replace(self, m=8, n=8, k=k) for k in (8, 16)]


class Scaled(Small):
    """The same with a reference of twice the size."""

    def reference_fn(self, *inputs):
        return {name: 2 * out for name, out in super().reference_fn(*inputs).items()}


class Lax(Small):
    """The same with a tolerance of its own."""

    def tolerance(self, output):
        return dataclasses.replace(super().tolerance(output), whole=0.5)


def test_what_the_code_gives_is_the_revision_and_not_how_it_is_written():
    known = revision(observe(Small))
    assert known.like(observe(Small))
    assert not known.like(observe(Scaled))
    assert not known.like(observe(Lax))
    assert not known.like(observe(Small)[:1])


def test_figures_tell_tensors_apart_that_have_the_same_norm():
    values = torch.randn(64, generator=torch.Generator().manual_seed(1))
    assert figures(values).like(figures(values.clone()))
    assert not figures(values).like(figures(-values))
    assert not figures(values).like(figures(values.flip(0)))
    broken = values.clone()
    broken[3] = math.inf
    assert figures(broken).infinite == 1


def test_a_plan_computes_the_problem_of_its_workload():
    class Plan(LatentProblem):
        """A kernel's."""

    assert problem_of(Plan) is LatentProblem
    assert name_of(LatentProblem) == "mla.LatentProblem"
    assert name_of(GemmProblem) == "gemm.GemmProblem"
