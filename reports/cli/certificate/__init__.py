"""The command about certificates, and how what is known of an op comes to it."""
