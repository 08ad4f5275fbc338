"""What the makers of opassay use and no user needs: it stands beside the package and is not installed.

mutation/ plants mistakes in the production ops and sees which properties refuse them. checking/ attacks the bound with
evaluations that a contract allows (random_evaluation/), and holds the exact reading against another one (second/).
sweeps/ measures elementary functions on every argument of a format. kernels/ judges the machine code and the traffic of
the CUDA kernels without a GPU. probing/ finds the tree along which a function adds up. upstream/ writes findings as
issues for a library. distributions.py makes the wheels. commands/ are the commands; `python -m workshop` in a checkout
lists them. The workshop imports opassay, and nothing imports the workshop but tests.
"""
