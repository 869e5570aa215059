"""What is made of a profiler's timeline: figures, pictures, files."""
