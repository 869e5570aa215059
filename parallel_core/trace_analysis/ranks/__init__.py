"""Several ranks of one job: their files, the collectives in which they met, and their figures side by side."""
