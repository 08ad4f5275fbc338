"""Generated custom functions: every feature of the contract of an autograd function, with a truth that is known."""
