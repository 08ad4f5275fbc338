"""JSON Schemas of the files that opassay reads and writes, as files, and what makes them."""
