"""Programs with random weights, which `../watched_models.py` runs under `opassay.watch`."""
