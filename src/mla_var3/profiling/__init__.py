"""Profiling modes: run a plan without a GPU, timed, or under a profiler, and record the result."""
