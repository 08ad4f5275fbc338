"""An op as it is declared: formula, implementations, samples, promises; and the paths along which it is called."""
