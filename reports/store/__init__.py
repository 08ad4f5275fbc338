"""Where a run keeps what it writes: its folder, its log, and files that replace others at once or not at all."""
