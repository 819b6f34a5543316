"""What a command does with a task: the shared steps, and one module for each of the eight."""
