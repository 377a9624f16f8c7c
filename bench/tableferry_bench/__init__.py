"""`ferry bench`: Tableferry and other ways to move the same rows, measured on the same servers."""
