"""The worker, a process that judges cells, and the command that starts one."""
