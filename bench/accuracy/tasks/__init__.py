"""The evaluations of the papers, one file each; `msdc.bench.accuracy.registry` lists them."""
