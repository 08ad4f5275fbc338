"""Words for people: what each property, profile and subject is."""
