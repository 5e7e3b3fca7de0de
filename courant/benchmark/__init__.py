"""Compare models on one dataset version at an equal budget, in a table that cannot fool its reader.

- `contenders`: models by name, as experiments that differ in the model alone
- `budget`: epochs, or processor time as the epochs that a model can train in it
- `request`: what is compared on which data, at which budget, in which folder
- `phases`: trials, which measure a model's speed, choose its learning rate, and train each seed
- `carrying_out`, `ray_runner`: what is left to do, phase by phase; trials on Ray Tune
- `assess`: test errors of a trained trial, and the time of its predictions
- `paper`: the paper's numbers, and what sets them apart
- `rows`: the records as rows, with intervals over seeds, references and ledger
- `markdown`, `files`, `figure`: the page, CSV and JSON, error against processor time
"""
