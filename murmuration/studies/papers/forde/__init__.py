"""Reproduction of input-gradient space particle inference (Trinh, Heinonen, Acerbi, Kaski 2024, ICLR)."""
