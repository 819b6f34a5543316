"""The promise, run: end-to-end experiments and a crash matrix over the real program."""
