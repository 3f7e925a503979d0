"""Tangent kernels of embedded ensembles: infinite-width limits, linearised training, regimes, finite networks."""
