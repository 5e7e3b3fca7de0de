"""Compare models on one dataset version at an equal budget, in a table that cannot fool its reader.

- `request`: the models, as experiments that differ in the model alone; the budget; the folder
- `phases`: trials, which measure a model's speed, choose its learning rate, and train each seed
- `ray_runner`: trials on Ray Tune, those of sweeps
- `assess`: test errors of a trained trial, and the time of its predictions
- `rows`, `paper`: the records as rows, and the paper's numbers beside them
- `page`: Markdown, CSV and JSON, error against processor time
"""
