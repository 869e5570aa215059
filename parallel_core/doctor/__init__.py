"""What is installed on this machine, what is wrong with it, why, and the command that fixes it."""
