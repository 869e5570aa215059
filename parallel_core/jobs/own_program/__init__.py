"""A program of the user's own under its framework's profiler: `parallel-core profile`.

Each Python process of the program imports `bootstrap/sitecustomize.py` at its start, whoever starts it: torchrun, a
worker that is spawned, a script of the shell's. The program itself runs as it would alone, so that its arguments, its
main module, what it pickles and how it ends stay what they are; running it inside this process would change them.
"""
