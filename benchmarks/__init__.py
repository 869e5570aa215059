"""Speed against plain framework code and against peers: one script a question, `make bench` for all
of them.
"""
