"""Wrong inputs by the thousand, and processes in which nothing that they do can hurt.

`case` is the contract of a kind of input; `kinds` lists them, one module each. `workers` runs cases
in processes with limits of time and memory, `inside` is what such a process does with a case,
`probed` its folder, and `table` what came of it.
"""
