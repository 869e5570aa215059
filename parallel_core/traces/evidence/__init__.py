"""What is found in a trace beyond its figures: why an exchange or a copy was not hidden; and all of
it as tracks for Perfetto.
"""
