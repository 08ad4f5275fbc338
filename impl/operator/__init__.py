"""What every op is made of: an op as torch sees it, its derivatives, checks, precision."""
