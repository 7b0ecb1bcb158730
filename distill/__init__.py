"""Teaching: corpora, targets, objectives, tasks, trainer, recipes."""
