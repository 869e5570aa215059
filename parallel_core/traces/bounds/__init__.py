"""What bounds a step, by rules, and the answer to “does my overlap happen?”."""
