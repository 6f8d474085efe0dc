"""The kernel's compiled loops: plain functions over int64 arrays.

Everything a loop needs comes in five arrays: `plan` (the subscriptions as numbers, see
`correlate.program`), `arena` (all state, with relative addresses), `columns` (encoded attributes by
row), `rank` (order of strings) and `scratch`. A subscription is data to these functions; they are
compiled once, whatever is asked, and cached on disk.
"""
