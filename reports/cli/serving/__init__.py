"""`opassay serve`: a queue of judgements over HTTP."""
