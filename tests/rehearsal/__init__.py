"""Tests of the rehearsal device (`properties/rehearsal`), and the record of what was rehearsed on it.

`python -m tests.rehearsal COMMAND...` runs a command, and all Python processes that it starts, on the device.
"""
