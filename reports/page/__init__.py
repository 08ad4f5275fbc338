"""The page that a browser shows: a record becomes a view, and the view one HTML file."""
