"""The steps of a program in its trace: which operations belong to each, and their figures."""
