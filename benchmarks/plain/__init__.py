"""The work of our experiments written directly in each framework, with none of this package's
verbs.
"""
