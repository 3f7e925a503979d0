"""What trained or untrained ensembles are like inside: kernels, regimes and predictions from closed forms."""
