"""What the command line knows of a project: its settings, its first files, and what words mean."""
