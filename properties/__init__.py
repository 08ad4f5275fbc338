"""What is ASKED, and of which inputs."""
