/// search.sql, which all platforms share.
let searchSQL = #"""
{{search_sql}}
"""#
