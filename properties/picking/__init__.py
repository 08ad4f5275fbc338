"""The choice of samples: drafts are drawn before any data, and picked by the declared values that they have."""
