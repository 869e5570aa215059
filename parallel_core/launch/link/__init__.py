"""The link between launches that were started by hand: one ends badly, and all of them end and name it."""
