"""Describe the stages of the main job: tell what is done already, and what stands in the way.

Notable features:
- Each stage is a frozen dataclass of what it is asked for, by the names of its flow's parameters.
- `finished()` gives the result of a stage with nothing left to do, else None. It reads, and writes
  nothing. InputError for a request that makes no sense, be it done or not.
- `prepare()` raises for whatever would stop the stage that is not done: a missing solver, a store
  that cannot be written, an experiment that does not fit its dataset.
- Nothing here imports Prefect or Ray, so that the command line asks both before it starts a server.
  The flows ask the same functions: there is no second way to tell what is done.
"""
