"""Running a plan and recording what came of it: without a GPU, timed, or under a profiler."""
