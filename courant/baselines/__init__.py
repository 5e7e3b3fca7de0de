"""Hold the published models that Courant is compared with, one file each.

A file holds a config, a model and the line that registers both, like a model of a user's own. Each
is imported when an experiment names its kind (`courant.models`), so that nobody else waits for it.
Two ways to predict at any query point are shared:

- a model that works on the points themselves takes the queries along as ghosts (`ghosts`);
- a model that works on a grid carries the cloud to the grid and samples it (`grids`).
"""
