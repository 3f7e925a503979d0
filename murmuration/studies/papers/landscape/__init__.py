"""Deep ensembles from the perspective of the loss landscape (Fort, Hu and Lakshminarayanan 2019)."""
