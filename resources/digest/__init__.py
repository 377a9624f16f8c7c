"""The row digest: one number per row that every system, and the client, computes alike.

docs/reconciliation.md defines it for those who read a report; `definition` for those who write it
in another system's SQL.
"""
