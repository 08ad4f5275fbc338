"""Tasks as public suites of problems keep them in files, each a spec and a candidate that the judge can ask."""
