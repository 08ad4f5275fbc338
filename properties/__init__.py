"""What is ASKED, of which inputs, and in which process."""
