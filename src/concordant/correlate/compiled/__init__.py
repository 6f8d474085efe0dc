"""The kernel's compiled loops: plain functions over int64 arrays.

Everything a loop needs comes as pointers to int64: `plan` (the subscriptions as numbers, see
`correlate.program`), `arena` (all state, with relative addresses), `cells` (encoded attributes, row
after row of `width` columns), `rank` (order of strings) and `scratch`. A subscription is data to
these functions; they are compiled once, whatever is asked, and cached on disk.
"""
