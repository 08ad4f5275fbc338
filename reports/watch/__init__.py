"""The page of a watched program."""
