"""Result tables of the papers (`*.csv`, with their source in the first line) beside our own rows."""
