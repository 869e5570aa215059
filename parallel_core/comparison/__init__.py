"""Compare cells (experiment × backend × engine) so that the answer can be believed: fresh processes, intervals."""
