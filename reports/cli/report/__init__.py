"""Commands that read records of runs: pages, tables, causes, comparisons; and those that mend or merge a record."""
