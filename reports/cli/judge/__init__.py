"""Commands that judge a candidate by a spec, and a task by what it lets through."""
