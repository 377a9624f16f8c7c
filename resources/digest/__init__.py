"""The row digest: one number per row that every system, and the client, computes alike.

docs/reconciliation.md defines it for readers of reports, and `definition` for those who write it in
another system's SQL.
"""
