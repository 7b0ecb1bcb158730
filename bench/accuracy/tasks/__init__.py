"""The evaluations of the papers, one file each; `bench.accuracy.registry` lists them."""
