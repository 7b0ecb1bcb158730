package org.msdc.encoder

/** search.sql, which all platforms share. */
internal const val SEARCH_SQL = """
{{search_sql}}"""
