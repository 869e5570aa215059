"""Okabe and Ito's colours, which remain apart for colour-blind readers, on white and on black."""

__all__ = ["COLOURS"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
