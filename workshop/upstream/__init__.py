"""Reports to the libraries at fault: a dossier for each finding, the rules of its form, and the issue made of it."""
