"""A phone by its link: a server on this machine, a page that measures in the phone's browser, answers checked here."""
