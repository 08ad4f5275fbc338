"""Which drafts become samples: drawn ahead of any data, and picked for the values that they have."""
