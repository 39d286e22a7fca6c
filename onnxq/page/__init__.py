"""Pages in HTML: values that say what stands on one, and how they are drawn and written; no model.

write_page(page, "report.html")    one file, which opens offline and asks nobody for anything
card(title, facts, tables)         the small form of it, for notebooks
"""
